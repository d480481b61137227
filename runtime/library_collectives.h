// The collectives of the communication library itself: the reference to compare this project's own
// with.
//
// Blocking, over all ranks of the transport that has them. Counts are elements. Every rank must
// make the same calls in the same order; ranks that disagree are the library's business, and one
// that waits for longer than the transport's timeout inside a call ends its process with a message,
// since such a call cannot be interrupted.
//
// Every dtype travels. f64, f32 and integers are reduced; bf16 and f16 are not (the communicator
// widens their sums), and throw UsageError. avg adds, as sum does: the division comes afterwards,
// through Backend::divide. Counts and offsets that the library's interface cannot express throw
// CommunicationError, before anything is sent.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/backend.h"
#include "runtime/tensor.h"

namespace ringworld {

class LibraryCollectives {
 public:
  // Elements of each rank's block.
  using Counts = std::span<const std::int64_t>;

  virtual ~LibraryCollectives() = default;

  // out = reduction over ranks of x. In place when out is x.
  virtual void all_reduce(const Tensor& out, const Tensor& x, ReduceOp op) = 0;
  // x holds a block for each rank; out = reduction of this rank's. In place when out is x's own
  // block: the rest of x is then undefined afterwards.
  virtual void reduce_scatter(const Tensor& out, const Tensor& x, Counts counts, ReduceOp op) = 0;
  // out = the ranks' x in order. In place when x is out's own block.
  virtual void all_gather(const Tensor& out, const Tensor& x, Counts counts) = 0;
  // x on every rank = x on root.
  virtual void broadcast(const Tensor& x, int root) = 0;
  // On root, as all_reduce; elsewhere out is not used.
  virtual void reduce(const Tensor& out, const Tensor& x, ReduceOp op, int root) = 0;
  // Block s of out on rank d = block d of x on rank s. Never in place. All blocks of all ranks are
  // equally long, or each has a count of its own: which of the two is the same on every rank.
  virtual void all_to_all(const Tensor& out, const Tensor& x) = 0;
  virtual void all_to_all(const Tensor& out, Counts receive_counts, const Tensor& x,
                          Counts send_counts) = 0;
  // On root, as all_gather; elsewhere out is not used.
  virtual void gather(const Tensor& out, const Tensor& x, Counts counts, int root) = 0;
  // out = this rank's block of x on root; elsewhere x is not used. In place on root when out is x's
  // own block.
  virtual void scatter(const Tensor& out, const Tensor& x, Counts counts, int root) = 0;
  virtual void barrier() = 0;
};

}  // namespace ringworld
