// What the floors above use to communicate: the collectives, over all ranks of a transport.
//
// Every call is queued on the communication stream and returns a Work: `.wait()` makes it blocking.
// Calls run in the order in which they are made; every rank must make the same calls in the same
// order, with the same count, dtype, reduction, root and label. Messages carry a tag hashed from
// all of these, so those of ranks that disagree do not match (but for one pair of calls in 32768):
// within the timeout every rank that waits for another throws CommunicationError that names its
// call and the peer, and nobody gets wrong numbers.
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
// Thread safety: one thread calls. Tensors given to a call must not be touched until its Work is
// done.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "collectives/schedule.h"
#include "runtime/stream.h"
#include "runtime/transport.h"

namespace ringworld {

struct CommunicatorOptions {
  std::chrono::milliseconds timeout{60'000};
  // Messages larger than this are cut into segments, so that reduction overlaps transfer. The same
  // on every rank.
  Bytes segment{1 << 20};
  std::string algorithm = "ring";
};

// What this rank has sent so far.
struct Traffic {
  std::int64_t calls = 0;  // collectives
  Bytes bytes_sent;
  friend Traffic operator-(const Traffic& a, const Traffic& b) {
    return {a.calls - b.calls, a.bytes_sent - b.bytes_sent};
  }
};

class Communicator {
 public:
  Communicator(Transport& transport, Backend& backend, CommunicatorOptions options = {});
  // Finishes what was submitted. While an exception unwinds it gives up instead: this rank's calls,
  // and so the other ranks', would else wait for what is never called.
  ~Communicator();

  int rank() const { return transport_.rank(); }
  int world_size() const { return transport_.world_size(); }
  std::string description() const { return transport_.description(); }
  Backend& backend() { return backend_; }

  // out = reduction over ranks of x; same element count. In place when out is x; otherwise x is
  // kept.
  [[nodiscard]] Work all_reduce(const Tensor& out, const Tensor& x, ReduceOp op, std::string label);
  // x holds world_size blocks of out's element count; out = reduction of block `rank`. In place
  // when out is x's own block: the rest of x is then undefined afterwards. Otherwise x is kept.
  [[nodiscard]] Work reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op,
                                    std::string label);
  // out holds world_size blocks of x's element count: the ranks' x in order. In place when x is
  // out's own block.
  [[nodiscard]] Work all_gather(const Tensor& out, const Tensor& x, std::string label);
  // x on every rank = x on root.
  [[nodiscard]] Work broadcast(const Tensor& x, int root, std::string label);
  // Returns when every rank has called it.
  void barrier(std::string label);

  // Small values, blocking, over all ranks.
  double all_reduce_value(double value, ReduceOp op, std::string label);
  std::int64_t all_reduce_value(std::int64_t value, ReduceOp op, std::string label);

  // All finished calls, and the same by label. Call only when no Work is pending.
  Traffic traffic() const;
  const std::map<std::string, Traffic>& traffic_by_label() const { return traffic_; }

 private:
  struct Call;
  Work submit(Call call);
  void run(const Call& call);
  Bytes run_on_buffer(const Call& call, const Tensor& buffer);
  const Schedule& schedule(Operation operation, int root);

  Transport& transport_;
  Backend& backend_;
  const CommunicatorOptions options_;
  const int exceptions_;  // that were unwinding when this was made
  std::int64_t sequence_ = 0;
  std::map<std::string, Traffic> traffic_;
  std::map<std::pair<Operation, int>, std::unique_ptr<Schedule>> schedules_;  // by operation, root
  Stream stream_;  // last: its thread ends before what it uses
};

}  // namespace ringworld
