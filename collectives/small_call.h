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

#include <exception>
#include <memory>
#include <vector>

#include "collectives/communicator_call.h"

namespace ringworld {

class Communicator::SmallCall final : public Work::Task {
 public:
  explicit SmallCall(Communicator& communicator);

  // Whether the call can be made so.
  static bool serves(const Communicator& communicator, const Call& call);
  // Throws as Transport::send does.
  void offer(Call&& call);
  // Once after each offer. Failures are kept for wait.
  void collect();

  void wait() override;
  bool done() override;

 private:
  void collect_all();
  void collect_reduced();
  void collect_blocks();

  Communicator& communicator_;
  Call call_;
  CallRecord record_;
  std::vector<Transport::Ticket> sends_;
  std::vector<Transport::Ticket> tickets_;  // of what is read, by rank
  bool pending_ = false;
  std::exception_ptr failure_;
};

}  // namespace ringworld
