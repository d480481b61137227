// An algorithm is data: what one rank does, step by step, in the verbs send, receive and
// receive-and-reduce over chunks of a buffer.
//
// A chunk is a part of the buffer; chunk c of n holds the elements chunk_range(count, n, c). The
// actions of one step are posted together and the next step begins when all of them are complete,
// so a chunk that a step writes occurs in no other action of that step. Messages from one rank to
// another match in the order in which they are posted, and both ends name the same chunk. The same
// schedule is proved (proof.h) and executed (execute.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bytes.h"

namespace ringworld {

enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };
inline constexpr Operation all_operations[] = {Operation::all_reduce, Operation::reduce_scatter,
                                               Operation::all_gather, Operation::broadcast};
std::string_view name_of(Operation operation);

enum class Verb : std::uint8_t { send, receive, receive_reduce };
std::string_view name_of(Verb verb);

struct Action {
  Verb verb;
  int peer;   // rank
  int chunk;  // index
  bool operator==(const Action&) const = default;
};

struct Step {
  std::vector<Action> actions;
};

// What one rank does.
class Schedule {
 public:
  explicit Schedule(int chunks) : chunks_(chunks) {}

  int chunks() const { return chunks_; }
  const std::vector<Step>& steps() const { return steps_; }

  // For emitting: begin_step, then the actions of the step. A step without actions is dropped.
  void begin_step();
  void send(int peer, int chunk) { add({Verb::send, peer, chunk}); }
  void receive(int peer, int chunk) { add({Verb::receive, peer, chunk}); }
  void receive_reduce(int peer, int chunk) { add({Verb::receive_reduce, peer, chunk}); }

 private:
  void add(Action action);

  int chunks_;
  std::vector<Step> steps_;
  bool step_open_ = false;
};

struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Elements of chunk `chunk` of `chunks` over `count` elements: sizes differ by at most one, the
// larger ones first, and any may be empty.
Range chunk_range(std::int64_t count, int chunks, int chunk);

// A registered algorithm. `emit` gives rank's schedule among `ranks`; `root` is for rooted
// operations. reduce_scatter and all_gather have one chunk per rank: the block it ends or begins
// with.
struct Algorithm {
  std::string_view name;
  Operation operation;
  Schedule (*emit)(int rank, int ranks, int root);
  // Closed forms, which the proof holds against the schedules. Steps one after the other from the
  // first to the last completion when each takes the same time, over all ranks; and elements sent
  // by all ranks together for a buffer of `count` elements.
  std::int64_t (*steps)(int ranks);
  std::int64_t (*elements_sent)(int ranks, std::int64_t count);
};

// The table: every algorithm there is (algorithms.cpp). Tests, benchmark and command line read it.
std::span<const Algorithm> algorithms();
// Throws UsageError that lists the operation's algorithms.
const Algorithm& find_algorithm(Operation operation, std::string_view name);

}  // namespace ringworld
