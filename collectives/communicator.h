// What the floors above use to communicate: the collectives, over all ranks of a transport or over
// a group of them.
//
// Every call returns a Work, which may be waited for while the communicator lives: `.wait()` makes
// the call blocking. Small ones begin at once (small_call.h), the others are queued on the
// communication stream. Calls run in the order in which they are made, and those up to 64 KiB may
// begin only when they are waited for or when the next one is made. Every rank must make the same
// calls in the same order, with the same count, dtype, reduction, root and label. Messages carry a
// signature hashed from all of these (over MPI 15 bits of it), so ranks that disagree find out at
// their first message, and nobody gets wrong numbers: CommunicationError then says what every rank
// calls and finished last, as it does when a rank is missing for longer than the timeout.
//
// Counts are elements and come from the tensors. Any count is right: 0, 1, fewer than ranks, not
// divisible. Sum and avg of bf16 and f16 travel and are reduced in f32 and are rounded once, so
// that neither the sum nor the mean of many ranks overflows or loses small values on the way;
// everything else is reduced in its own dtype. Integers wrap, and their avg is truncated towards
// zero. The result has the same bits on every rank and in every repetition. Over one rank the
// output is the input and nothing is sent.
//
// Tensors that do not fit a call (count, dtype, root, an overlap other than the one in place) throw
// std::invalid_argument from the call itself: a bug in the caller.
//
// Beside the tensors of a call, a communicator holds what its largest call so far worked in
// (scratch.h), shared with its groups.
//
// Thread safety: one thread calls. Tensors given to a call must not be touched until its Work is
// done.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/algorithm.h"
#include "runtime/stream.h"
#include "runtime/transport.h"

namespace ringworld {

struct CallRecord;  // communicator_call.h
class Selection;    // selection.h

struct CommunicatorOptions {
  std::chrono::milliseconds timeout{60'000};
  // Messages larger than this are cut into segments, so that reduction overlaps transfer. The same
  // on every rank.
  Bytes segment{1 << 20};
  // Serves every operation that has an algorithm of this name; "auto", and the operations without,
  // choose one for each call, by the selection.
  std::string algorithm = "auto";
  // What an operation uses instead.
  std::map<Operation, std::string> algorithms = {};
  // Must outlive the communicator, and be the same on every rank. nullptr: the built-in table.
  const Selection* selection = nullptr;
  // Add in the order of the ranks whatever the count and its cut: only algorithms that do
  // (Algorithm::rank_order) serve the operations that reduce.
  bool reproducible = false;
};

// What this rank has sent so far.
struct Traffic {
  std::int64_t calls = 0;  // collectives
  Bytes bytes_sent;
  friend Traffic operator-(const Traffic& a, const Traffic& b) {
    return {a.calls - b.calls, a.bytes_sent - b.bytes_sent};
  }
};

using TrafficByLabel = std::map<std::string, Traffic, std::less<>>;

class Communicator {
 public:
  // Elements of each rank's block.
  using Counts = std::vector<std::int64_t>;

  // Throws UsageError when an algorithm is unknown or cannot serve this number of ranks.
  Communicator(Transport& transport, Backend& backend, CommunicatorOptions options = {});
  // Finishes what was submitted. While an exception unwinds it gives up instead: this rank's calls,
  // and so the other ranks', would else wait for what is never called.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // A communicator over some of this one's ranks, in the order given, which become its ranks 0, 1,
  // ...; this rank must be one of them, and only they call this. Groups may overlap. They share the
  // communication stream: calls on this communicator and all of its groups run in the order in
  // which this rank makes them, so ranks that share several groups must use them in the same order.
  std::unique_ptr<Communicator> subgroup(const std::vector<int>& ranks);

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(ranks_.size()); }
  std::string description() const { return transport_.description(); }
  Backend& backend() { return backend_; }

  // Which algorithm, or "auto", serves the calls made from here on; the same on every rank. Throws
  // UsageError when it is unknown or cannot serve this number of ranks.
  void use(Operation operation, std::string_view algorithm);
  // The one that serves a call on so many bytes, counted as in SelectionRule.
  const Algorithm& algorithm(Operation operation, Bytes bytes);
  // What such a call sends, over all ranks, by the algorithm's closed form; in 16-bit formats only
  // where it does not widen. `equal_counts`: all ranks' blocks are equally long.
  Bytes expected_traffic(Operation operation, std::int64_t elements, DType dtype,
                         bool equal_counts = true);
  // One line for each choice made so far, by operation and size: for which calls, which algorithm,
  // and why.
  std::vector<std::string> explanations() const;

  // out = reduction over ranks of x; same element count. In place when out is x; otherwise x is
  // kept.
  [[nodiscard]] Work all_reduce(const Tensor& out, const Tensor& x, ReduceOp op,
                                std::string_view label);
  // x holds a block for each rank, of out's element count or of `counts`; out = reduction of block
  // `rank`. In place when out is x's own block: the rest of x is then undefined afterwards.
  // Otherwise x is kept.
  [[nodiscard]] Work reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op,
                                    std::string_view label);
  [[nodiscard]] Work reduce_scatter(const Tensor& out, const Tensor& x, const Counts& counts,
                                    ReduceOp op, std::string_view label);
  // out holds a block for each rank, of x's element count or of `counts`: the ranks' x in order. In
  // place when x is out's own block.
  [[nodiscard]] Work all_gather(const Tensor& out, const Tensor& x, std::string_view label);
  [[nodiscard]] Work all_gather(const Tensor& out, const Tensor& x, const Counts& counts,
                                std::string_view label);
  // x on every rank = x on root.
  [[nodiscard]] Work broadcast(const Tensor& x, int root, std::string_view label);
  // On root, out = reduction over ranks of x, as all_reduce does; elsewhere out is not used and may
  // be undefined.
  [[nodiscard]] Work reduce(const Tensor& out, const Tensor& x, ReduceOp op, int root,
                            std::string_view label);
  // x holds a block for each rank and out one from each; block s of out on rank d = block d of x on
  // rank s. All blocks are equally long, or block d of x has send_counts[d] elements and block s of
  // out receive_counts[s], which must be what rank s sends. Throws UsageError when the counts are
  // given and the algorithm needs equal ones.
  [[nodiscard]] Work all_to_all(const Tensor& out, const Tensor& x, std::string_view label);
  [[nodiscard]] Work all_to_all(const Tensor& out, const Counts& receive_counts, const Tensor& x,
                                const Counts& send_counts, std::string_view label);
  // On root, out = the ranks' x in order, as all_gather does; elsewhere out is not used.
  [[nodiscard]] Work gather(const Tensor& out, const Tensor& x, int root, std::string_view label);
  // out = block `rank` of x on root, where x holds a block of out's element count for each rank;
  // elsewhere x is not used. In place on root when out is x's own block.
  [[nodiscard]] Work scatter(const Tensor& out, const Tensor& x, int root, std::string_view label);
  // x goes to rank `to`, which receives it: the same count, dtype and label there. The Work is done
  // when x may change, and should be waited for; later calls do not wait for it.
  [[nodiscard]] Work send(const Tensor& x, int to, std::string_view label);
  // out = what rank `from` sends to this one next.
  [[nodiscard]] Work receive(const Tensor& out, int from, std::string_view label);
  // Returns when every rank has called it.
  void barrier(std::string_view label);

  // Small values, blocking, over all ranks.
  double all_reduce_value(double value, ReduceOp op, std::string_view label);
  std::int64_t all_reduce_value(std::int64_t value, ReduceOp op, std::string_view label);

  // All finished calls, and the same by label, of this communicator and of all that share its
  // stream: its groups, and what it is a group of. Call only when no Work is pending.
  Traffic traffic() const;
  const TrafficByLabel& traffic_by_label() const;

 private:
  // communicator_call.h
  template <class TensorT, class CountsT, class Text>
  struct CallOf;
  using Asked = CallOf<const Tensor&, const Counts&, std::string_view>;
  using Call = CallOf<Tensor, Counts, std::string>;
  static inline const Tensor no_tensor;
  static inline const Counts no_counts;
  struct Plan;
  struct Line;
  class SmallCall;
  class Sending;
  struct Chosen {
    const Algorithm* algorithm = nullptr;
    std::uint64_t hash = 0;  // of its name
  };
  Communicator(const Communicator& parent, std::vector<int> ranks, int rank);
  void use_named(const Algorithm& algorithm);  // throws as checked does
  const Algorithm& checked(const Algorithm& algorithm) const;
  void use_default(Operation operation);
  const Chosen& choose(Operation operation, Bytes bytes, bool equal_counts);
  void check_root(std::string_view call, int root) const;
  void check_peer(std::string_view call, int peer) const;
  CallRecord message_record(const Tensor& x, int from, int to, std::int64_t number,
                            std::string_view label) const;
  Work submit(Asked call);
  void finish_small();  // makes room for other calls
  void begin();         // of a call: throws what has failed before it
  Traffic& traffic_of(std::string_view label);
  void count(std::string_view label, std::int64_t bytes_sent);
  void run(const Call& call);
  Bytes run(const Call& call, const CallRecord& record);  // returns what it sent
  // What becomes the output, undefined where that is there already, before avg divides.
  struct Outcome {
    Tensor result;
    Bytes bytes_sent;
  };
  Outcome run_schedule(const Call& call, const CallRecord& record);
  Outcome run_library(const Call& call, LibraryCollectives& library);
  void fill(const Tensor& to, const Tensor& from);  // copies or casts, unless they are the same
  Bytes run_on_chunks(const CallRecord& record, ReduceOp op, Plan& plan,
                      const std::vector<Tensor>& chunks, const std::vector<Tensor>& inputs);
  Plan& plan(const Call& call);
  // What a call's failure means, with what all ranks are doing.
  std::string explain(const CallRecord& record, std::string_view failure);

  Transport& transport_;
  Backend& backend_;
  const CommunicatorOptions options_;
  const std::vector<int> ranks_;  // of the transport, by rank of this communicator
  const int rank_;
  const std::uint64_t group_;  // a hash of the ranks
  const bool reaches_small_;   // every other rank takes small messages with their flag
  const int exceptions_;       // that were unwinding when this was made
  // How an operation's algorithm is found: by name, or for each size and kind of counts.
  struct Choice {
    std::optional<Chosen> named = {};
    std::map<std::pair<std::int64_t, bool>, Chosen> by_size = {};  // bytes, equal counts
    const std::pair<const std::pair<std::int64_t, bool>, Chosen>* last = nullptr;
  };
  std::array<Choice, std::size(all_operations)> choices_;                          // by operation
  std::map<std::tuple<Operation, std::int64_t, bool>, std::string> explanations_;  // as by_size
  std::int64_t sequence_ = 0;
  struct Messages {
    std::int64_t sent = 0;
    std::int64_t received = 0;
  };
  std::vector<Messages> messages_;                                 // with each rank, so far
  std::pair<const std::string, Traffic>* last_traffic_ = nullptr;  // that was counted
  std::map<std::pair<const Algorithm*, int>, std::unique_ptr<Plan>> plans_;  // by algorithm, root
  Work last_;                                                                // submitted
  std::unique_ptr<SmallCall> small_;                                         // made when needed
  std::shared_ptr<Line> line_;  // last: its thread ends before what it uses
};

}  // namespace ringworld
