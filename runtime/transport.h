// The verbs between ranks: send, receive, receive-and-reduce, wait.
//
// Every verb is posted and returns at once; waiting completes it. Messages from one rank to another
// with the same tag match in the order in which they were posted; sizes of matching messages are
// equal. A send may complete only when its receive does (no buffering is promised), so an algorithm
// may not rely on it. While a rank waits for one verb, all that it has posted makes progress.
//
// A transport is used by one thread at a time, the communication stream; only abandon may be called
// from another one. Once a wait has thrown, the transport is broken: every later verb throws.
//
// Implementations: `mpi` (any MPI 3 library), `threads` (ranks as threads of one process).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/backend.h"
#include "runtime/tensor.h"

namespace ringworld {

// Distinguishes messages of different collectives: 0 to 32767, what every MPI library supports.
using Tag = int;
inline constexpr Tag max_tag = 32767;

class Transport {
 public:
  // A posted verb; it is waited for exactly once.
  using Ticket = std::uint64_t;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_ranks() const = 0;          // that share this machine, this one included
  virtual std::string description() const = 0;  // "MPICH 4.0.2", "threads"

  // The backend that reduces what arrives, and whose device holds any staging. Called by every
  // communicator before its first verb; the last one counts.
  virtual void bind(Backend& backend) = 0;
  // How long a wait may see none of its verbs complete before it throws. Zero: forever.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  virtual Ticket send(int to, Tag tag, const Tensor& x) = 0;
  virtual Ticket receive(int from, Tag tag, const Tensor& out) = 0;  // out =
  // out = out (op) x; the reduction may happen as late as in a wait.
  virtual Ticket receive_reduce(int from, Tag tag, const Tensor& out, ReduceOp op) = 0;

  // Returns when one of the verbs is complete, with its index: a send's tensor may change, a
  // receive's is there. Throws CommunicationError that names this rank and the peer when none
  // completes within the timeout, the peer is known to be gone, or the sizes do not match.
  virtual std::size_t wait_any(std::span<const Ticket> tickets) = 0;
  void wait(Ticket ticket) { wait_any({&ticket, 1}); }

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

// For a rank whose command has failed and which communicates no more. When every rank calls this
// within `patience`, all failed: each gets all messages, by rank (the first 4000 bytes of each).
// Otherwise returns nothing: this rank failed while others go on, and must end the job.
std::vector<std::string> gather_mpi_failures(const std::string& message,
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
