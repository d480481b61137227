// Small calls, without a stream, a schedule or an allocation.
//
// When what one rank gives another fits into a message that travels with its flag, and every rank
// of the communicator is reached that way, a call is one step: what this rank gives is offered to
// everybody who needs it when the call is made, and what the others offered is collected when it is
// waited for or when the next call is made. That is what the one-step algorithms do: one_shot for
// all_reduce, direct for reduce_scatter, all_gather, broadcast, reduce and all_to_all. Messages,
// results and order of addition are theirs, so that a rank whose stream is busy runs the schedule
// and meets the others all the same.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "collectives/communicator_call.h"

namespace ringworld {

class Communicator::SmallCall final : public Work::Series {
 public:
  explicit SmallCall(Communicator& communicator);

  // Whether the call can be made so.
  static bool serves(const Communicator& communicator, const Asked& call);
  // After the one before has been collected. Throws as Transport::send does.
  Work offer(const Asked& call);
  // What has been offered, unless that is done. A failure is kept for wait and for later calls.
  void collect();

  void wait(std::int64_t sequence) override;
  bool done(std::int64_t sequence) override;

 private:
  void place_own(const Asked& call, std::int64_t elements);
  void collect_all();
  void collect_reduced();
  void collect_blocks();
  // Whether this rank gets something from `peer`, another rank.
  bool gets_from(int peer) const;

  Communicator& communicator_;
  // Of the call that was offered last.
  Operation operation_ = Operation::barrier;
  ReduceOp op_ = ReduceOp::sum;
  int root_ = 0;
  std::int64_t sequence_ = 0;
  Bytes message_;  // what one rank gives another
  // The tensors are lent, of memory that is kept until the call is over; longer if it fails, since
  // messages may be left.
  bool writes_ = false;  // whether something comes out here
  Tensor out_;
  Tensor own_;  // what this rank adds, or its own block
  std::shared_ptr<const Storage> out_memory_;
  std::shared_ptr<const Storage> x_memory_;
  std::vector<Transport::Ticket> sends_;  // that have not left yet
  std::int64_t messages_sent_ = 0;
  std::vector<Transport::Ticket> tickets_;  // of what is read, by rank
  Traffic* traffic_ = nullptr;              // where it counts
  bool pending_ = false;
  std::int64_t failed_ = 0;  // the call that did, after which there is no other: its sequence
};

}  // namespace ringworld
