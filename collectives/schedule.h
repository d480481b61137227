// An algorithm is data: what one rank does, step by step, in a handful of verbs over chunks.
//
// A rank's chunks are its part of the data (how many there are and what they mean is the
// operation's: see Operation) and scratch, which an algorithm may add. In one step, local actions
// run first, in order; then all messages of the step are posted together, and the next step begins
// when they are complete. All that a step sends to one peer is one message, which one step of that
// peer receives: as many chunks, in the same order, each as long as what arrives there. So a chunk
// that a step writes by a message occurs in no other message of that step, and nothing may depend
// on a send being buffered. The same schedule is proved (proof.h), executed (execute.h) and shown.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ringworld {

// What is promised, for P ranks. The data chunks of a rank are, unless something else stands here,
// parts of one buffer whose number the algorithm chooses.
enum class Operation : std::uint8_t {
  all_reduce,      // every rank: the reduction of all ranks' buffers
  reduce_scatter,  // P chunks; rank r: chunk r of the reduction
  all_gather,      // P chunks, of which rank r gives chunk r; every rank: all
  broadcast,       // every rank: the root's buffer
  reduce,          // root: the reduction of all ranks' buffers
  all_to_all,      // 2 P chunks: P that go to the ranks, P that come from them
  gather,          // P chunks, of which rank r gives chunk r; root: all
  scatter,         // P chunks on the root; rank r: chunk r
  barrier,         // nobody ends before everybody has begun
};
inline constexpr Operation all_operations[] = {
    Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
    Operation::broadcast,  Operation::reduce,         Operation::all_to_all,
    Operation::gather,     Operation::scatter,        Operation::barrier};
std::string_view name_of(Operation operation);
bool has_root(Operation operation);
bool reduces(Operation operation);  // all_reduce, reduce_scatter, reduce
// The number of data chunks that the operation demands; 0 where the algorithm chooses it.
int demanded_chunks(Operation operation, int ranks);

enum class Verb : std::uint8_t { send, receive, receive_reduce, copy, reduce };
std::string_view name_of(Verb verb);

// A message, or a chunk of one.
struct Action {
  Verb verb;  // send, receive or receive_reduce
  int peer;   // rank
  int chunk;  // index
  bool operator==(const Action&) const = default;
};

// copy: chunk = source; reduce: chunk = chunk (op) source.
struct LocalAction {
  Verb verb;
  int chunk;
  int source;
  bool operator==(const LocalAction&) const = default;
};

struct Step {
  std::vector<LocalAction> local = {};
  std::vector<Action> actions = {};
};

// What one rank does.
class Schedule {
 public:
  explicit Schedule(int data_chunks) : data_chunks_(data_chunks) {}

  // Chunks 0 to data_chunks() - 1 are data, those from there to chunks() - 1 scratch.
  int data_chunks() const { return data_chunks_; }
  int chunks() const { return data_chunks_ + static_cast<int>(scratch_.size()); }
  // Of each scratch chunk, the data chunk that it is as long as.
  const std::vector<int>& scratch() const { return scratch_; }
  const std::vector<Step>& steps() const { return steps_; }
  // Of each chunk, whether it is scratch that one message of its own fills, which the local actions
  // of the next step and nobody else read, and those write to nothing that was sent in the step
  // before: ranks that exchange chunks to add to them would else wait for one another. Throws
  // std::out_of_range when a step names a chunk that there is not.
  std::vector<bool> borrowed() const;

  // For emitting: begin_step, then the actions of the step. A step without actions is dropped.
  int add_scratch(int as_long_as);  // returns the new chunk's index
  void begin_step() { step_open_ = false; }
  void send(int peer, int chunk) { message({Verb::send, peer, chunk}); }
  void receive(int peer, int chunk) { message({Verb::receive, peer, chunk}); }
  void receive_reduce(int peer, int chunk) { message({Verb::receive_reduce, peer, chunk}); }
  void copy(int chunk, int source) { local({Verb::copy, chunk, source}); }
  void reduce(int chunk, int source) { local({Verb::reduce, chunk, source}); }

 private:
  Step& open_step();
  void message(Action action) { open_step().actions.push_back(action); }
  void local(LocalAction action) { open_step().local.push_back(action); }

  int data_chunks_;
  std::vector<int> scratch_;
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

}  // namespace ringworld
