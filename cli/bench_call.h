// One operation, ready to be called again and again on this rank's buffers. Where it has a root,
// every rank is it in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cli/bench_data.h"
#include "cli/bench_sizes.h"
#include "collectives/algorithm.h"
#include "collectives/communicator.h"
#include "runtime/library_collectives.h"

namespace ringworld {

// Whether an operation can run out of place, and in place.
bool has_out_of_place(Operation operation);
bool has_in_place(Operation operation);

// What is compared.
struct Contender {
  const Algorithm* algorithm;
  bool in_place;
};

class BenchCall {
 public:
  // What its calls are labelled with.
  static constexpr const char* label = "bench";

  // `op` and `root`, which is the first call's, are looked at where the operation has them.
  // Allocates what the largest size needs. `library` may be nullptr.
  BenchCall(Communicator& communicator, LibraryCollectives* library, Operation operation,
            DType dtype, ReduceOp op, int root, const BufferSize& largest);

  // Input and output of one rank together, in elements; a double, since this is asked of sizes that
  // no machine has.
  static double elements_needed(Operation operation, const BufferSize& size);

  // Chooses what run calls: with views of the buffers, whose content stays. The `mpi` reference is
  // the library's own call, with nothing of this project around it; only where that would compute
  // something else (avg, and sums of 16 bits) it goes through the communicator as all others do.
  void prepare(const BufferSize& size, const Contender& contender);
  // One call, from its beginning to its end: after `prepare` with the first root, then the next.
  void run() {
    turns_[next_].run();
    next_ = next_ + 1 == turns_.size() ? 0 : next_ + 1;
  }
  // After how many calls the first root is it again.
  std::int64_t turns() const { return std::ssize(turns_); }

  // Before the first run, writes what this rank gives; what it is to get is overwritten with
  // something else.
  void fill();
  // After fill and one run: how many of the elements that this rank got are wrong.
  std::int64_t count_wrong() const;
  // Flips a bit of what one rank got: of the root, where it alone gets something, else of the last.
  void flip_bit() const;

 private:
  // What `part` must hold.
  struct Expected {
    Tensor part;
    int source;
    std::int64_t first;
  };
  // A call with one root, and this rank's part in it.
  struct Turn {
    Tensor x;    // undefined where this rank gives nothing
    Tensor out;  // undefined where it gets nothing
    std::vector<Expected> expected;
    std::function<void()> run;
  };

  Turn turn(const BufferSize& size, bool in_place, int root) const;
  std::function<void()> library_call(const BufferSize& size, const Turn& turn, int root) const;

  Communicator& communicator_;
  LibraryCollectives* const library_;
  Backend& backend_;
  const Operation operation_;
  const ReduceOp op_;
  const int root_;
  const BenchData data_;
  Tensor input_;   // for the largest size
  Tensor output_;  // for the largest size

  std::vector<Turn> turns_;
  std::size_t next_ = 0;
};

}  // namespace ringworld
