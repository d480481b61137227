// The verbs between ranks: send, receive, read, wait.
//
// Every verb is posted and returns at once; waiting completes it. Messages from one rank to another
// meet in the order in which they were posted. Each carries the signature of the call that it
// belongs to: where a message meets a receive of another signature or size, the two ranks are in
// different calls, and the wait throws. A send may complete only when its receive does (no
// buffering is promised), so an algorithm may not rely on it. While a rank waits for one verb, all
// that it has posted makes progress.
//
// A transport is used by one thread at a time; only abandon may be called from another one. Once a
// wait has thrown, the transport is broken: every later verb throws.
//
// Implementations: `mpi` (any MPI 3 library), `shared` (ranks of one machine, which read each
// other's memory; others through a transport below it), `threads` (ranks as threads of one
// process), `null` (no other ranks: a dry run).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/backend.h"
#include "runtime/shared_arena.h"
#include "runtime/tensor.h"

namespace ringworld {

class LibraryCollectives;  // library_collectives.h

// A hash of all that ranks must agree on in one call. Over MPI its lowest 15 bits travel.
using Signature = std::uint64_t;

// What a rank says of itself, for the others to read when something goes wrong: which call it is in
// and which it finished last. The transport does not look inside.
using Statement = std::array<std::uint64_t, 40>;

// Where a rank says it: words that it changes one by one, at hardly any cost.
using Board = std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Statement>>;

inline Statement read(const Board& board) {
  Statement statement;
  for (std::size_t word = 0; word < board.size(); ++word) {
    statement[word] = board[word].load(std::memory_order_relaxed);
  }
  return statement;
}

// What another rank said, and whether it waits for others or has failed, as far as one can see: a
// rank that does neither computes, or is stopped.
struct Said {
  Statement statement;
  bool waits;
};

class Transport {
 public:
  // A posted verb. It completes once, in a wait.
  using Ticket = std::uint64_t;
  // What may be returned for a send that is complete when it is posted; waiting for it is allowed.
  static constexpr Ticket over = ~Ticket{0};

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_ranks() const = 0;  // that share this machine, this one included
  // Every rank of this machine has a CPU of its own, so that who waits may spin.
  virtual bool own_core() const { return false; }
  virtual std::string_view name() const = 0;    // "mpi", "shared", "mixed", "threads"
  virtual std::string description() const = 0;  // "MPICH 4.0.2, shared memory"

  // Whose device holds any staging. Called by every communicator before its first verb; the last
  // one counts.
  virtual void bind(Backend& backend) = 0;
  // How long a wait may see none of its verbs complete before it throws. Zero: forever.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  virtual Ticket send(int to, Signature signature, const Tensor& x) = 0;
  virtual Ticket receive(int from, Signature signature, const Tensor& out) = 0;  // out = x
  // Receives `elements` of `dtype` to where the transport likes: staging, or the sender's own
  // memory, read in place. When complete, reading() is the tensor, until done_reading(): until then
  // the send may stay incomplete. Messages of one peer are done with in the order of their posting.
  virtual Ticket read(int from, Signature signature, DType dtype, std::int64_t elements) = 0;
  virtual const Tensor& reading(Ticket ticket) = 0;
  virtual void done_reading(Ticket ticket) = 0;

  static constexpr Bytes small_message{4096};
  // Whether messages of up to `small_message` to `peer` travel with their flag: their sends are
  // over at once, or, when many are under way, as soon as there is room.
  virtual bool takes_small(int /*peer*/) const { return false; }
  // Whether messages from and to `peer` are read where they lie, so that cutting them into
  // segments would gain nothing.
  virtual bool in_place(int peer) const = 0;

  // Returns when one of the verbs is complete, with its index: a send's tensor may change, a
  // receive's is there. Throws CommunicationError that names this rank and the peer when none
  // completes within the timeout, the peer is known to be gone, or the two are in different calls.
  virtual std::size_t wait_any(std::span<const Ticket> tickets) = 0;
  void wait(Ticket ticket) { wait_any({&ticket, 1}); }

  // Looks once whether the verb is complete; if so, its ticket is used up. Throws as wait_any does,
  // but never for the time that has gone by.
  virtual bool test(Ticket ticket) = 0;
  // What a rank that waits elsewhere does now and then: answers what others ask this transport.
  virtual void attend() {}

  // This rank's own.
  virtual Board& board() = 0;
  // After a wait has thrown: what all ranks say, as far as it can be had within the patience.
  virtual std::vector<std::optional<Said>> statements(std::chrono::milliseconds patience) = 0;

  // Ranks whose processes are known to have ended: of this machine, where the system tells.
  virtual std::vector<int> ended() const { return {}; }

  // The library's own collectives over all ranks, where there is a library.
  virtual LibraryCollectives* library() { return nullptr; }

  // This rank gives up, for example because an exception ends it: a wait under way and every later
  // one throws. May be called from any thread.
  virtual void abandon() = 0;
};

// The MPI transport of this process. Initialises MPI, finalises it when destroyed. `argc`, `argv`
// as main got them. Throws CommunicationError when the MPI library cannot serve, or when the
// launcher belongs to another MPI library (every process would believe itself rank 0 of 1).
//
// Destroyed while an exception unwinds or with messages under way, it does not finalise, which
// would wait for the other ranks: the process must then end through abort_mpi_job.
std::unique_ptr<Transport> make_mpi_transport(int* argc, char*** argv);

// Over `below`, which carries what goes to other machines and must outlive it: ranks whose arenas
// can be mapped exchange messages through them, with no copy where a tensor lies in its rank's
// arena. Every rank calls this, with an arena or with nullptr. `machines` above 1 treats the world
// as so many equal runs of ranks, of which each believes itself on a machine of its own.
//
// Returns nullptr, on every rank, when any rank of the world has no arena or cannot map another
// one's of its machine; `why_not` then says why.
//
// The arena's front must have shared_front(below.local_ranks()) bytes.
Bytes shared_front(int local_ranks);
std::unique_ptr<Transport> make_shared_transport(Transport& below,
                                                 std::shared_ptr<SharedArena> arena, int machines,
                                                 std::string& why_not);

// Whether every rank calls this with the same value; for what must be the same before a transport
// can be chosen.
bool same_on_all_ranks(Transport& transport, std::int64_t value);

// What the null transport stands for: what decides which algorithm serves a call and what memory it
// takes is answered as this transport would.
struct NullOptions {
  enum class As : std::uint8_t { shared, mpi, threads };
  As as = As::shared;
  // Ranks of one machine, which are neighbours: with `shared`, messages to others go through MPI,
  // as on real machines and with machines > 1 in make_shared_transport. 0: all ranks.
  int local_ranks = 0;
};

// This process alone as rank `rank` of `world_size`, for dry runs on the meta backend. Every verb
// is complete when it is posted, and nothing moves: what is received, read or reduced is undefined,
// which on the meta backend is zero. A call takes as long as posting this rank's own messages does.
// There are no library collectives. Throws std::invalid_argument when there is no such rank; bind
// throws it for another backend.
std::unique_ptr<Transport> make_null_transport(int rank, int world_size,
                                               const NullOptions& options = {});

// For a rank whose command has failed and which communicates no more: tells the others its message
// (the first 4000 bytes) and hears theirs, by rank, as far as they fail within `patience`, too.
std::vector<std::optional<std::string>> gather_mpi_failures(const std::string& message,
                                                            std::chrono::milliseconds patience);

// Ends this process with the exit code, and with it the whole job unless MPI has been finalised.
[[noreturn]] void abort_mpi_job(int exit_code);

// Ranks as threads: runs body(transport) on `world_size` threads, each with the transport of its
// rank, and returns when all have returned. When one throws, the others' waits throw too, and the
// first exception is rethrown here with its rank in front of the message, one that is no
// CommunicationError before one that is: an Error as the same kind of Error, anything else that has
// a message as std::runtime_error.
void run_on_threads(int world_size, const std::function<void(Transport&)>& body);

}  // namespace ringworld
