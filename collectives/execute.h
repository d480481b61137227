// Runs one rank's schedule on its chunks, over a transport.
//
// Where the transport reads in place, a message is taken from where it lies with its sender: copied
// or reduced straight into its chunk, or, in scratch that is only read (Schedule::borrowed), not
// moved at all. Elsewhere it is cut into segments, a few of which are posted at any time, so that a
// segment is reduced while the next ones are under way, and staging stays small. A message that
// joins scattered chunks is packed. All of that lies in the communicator's Scratch. One without
// elements is not sent and not received.
//
// A step waits for what it receives. What it sends is waited for only when a later step writes
// there, or at the end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/local_sums.h"
#include "collectives/schedule.h"
#include "collectives/scratch.h"
#include "runtime/backend.h"
#include "runtime/transport.h"

namespace ringworld {

// How a schedule reaches the others.
struct Route {
  Transport& transport;
  std::span<const int> ranks;  // of the transport, by the schedule's rank
  Signature signature = 0;
  Bytes segment{1 << 20};
};

// One rank's schedule, made ready once to be run often.
class Executor {
 public:
  explicit Executor(Schedule schedule);

  const Schedule& schedule() const { return schedule_; }

  // `chunks` are the data chunks, one dtype; those that the schedule does not name may be empty.
  // `inputs`, unless empty, are where the data chunks' first content is read, and is kept, if not
  // in the chunk itself (undefined): what is overwritten anyway is then never copied. `op` is what
  // reductions do. All ranks pass the same dtype, signature and segment. What it takes from
  // `scratch` is in use until it returns. Returns the bytes that this rank sent. Throws
  // CommunicationError as Transport::wait_any does.
  Bytes run(std::span<const Tensor> chunks, std::span<const Tensor> inputs, ReduceOp op,
            Backend& backend, Scratch& scratch, const Route& route);

 private:
  // The message of one step to one peer, or from one.
  struct Lane {
    int peer;
    std::vector<Action> actions = {};
    bool borrows = false;  // what arrives is read where it is
  };
  struct Stage {
    std::vector<LocalAction> local = {};  // unless they are sums
    std::vector<LocalSum> sums = {};
    std::vector<Lane> sends = {};
    std::vector<Lane> receives = {};
    std::vector<int> local_writes = {};  // chunks, in order
    std::vector<int> message_writes = {};
  };
  // What a scratch chunk needs: nothing where it is borrowed or its local actions come to sums that
  // put nothing aside, or as much as such sums work in.
  enum class Room : std::uint8_t { none, piece, whole };
  class Run;

  void mark_rooms();

  const Schedule schedule_;
  std::vector<Stage> stages_;
  std::vector<bool> borrowed_;  // by chunk
  std::vector<Room> rooms_;     // of scratch chunks, in order
};

// `buffer` as `count` chunks that differ by at most one element (chunk_range).
std::vector<Tensor> even_chunks(const Tensor& buffer, int count);

}  // namespace ringworld
