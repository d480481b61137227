#include "collectives/small_call.h"

#include <string_view>
#include <utility>

#include "runtime/error.h"

namespace ringworld {
namespace {

// Whether `from` gives `to` something.
bool gives(Operation operation, int root, int from, int to) {
  return operation == Operation::broadcast ? from == root
         : operation == Operation::reduce  ? to == root
                                           : true;
}

// Whether a rank gives every other one a block of its own.
bool gives_blocks(Operation operation) {
  return operation == Operation::reduce_scatter || operation == Operation::all_to_all;
}

bool is_one_step(const Algorithm& algorithm) {
  switch (algorithm.operation) {
    case Operation::all_reduce:
      return algorithm.name == "one_shot";
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::broadcast:
    case Operation::reduce:
    case Operation::all_to_all:
      return algorithm.name == "direct";
    default:
      return false;
  }
}

// What one rank gives another, of an input of so many bytes.
Bytes message_of(Operation operation, Bytes input, int ranks) {
  return gives_blocks(operation) ? Bytes(input.value / ranks) : input;
}

}  // namespace

Communicator::SmallCall::SmallCall(Communicator& communicator)
    : communicator_(communicator), tickets_(communicator.ranks_.size()) {}

bool Communicator::SmallCall::serves(const Communicator& communicator, const Asked& call) {
  if (!communicator.reaches_small_ || !is_one_step(*call.algorithm) || call.uneven ||
      call.widens()) {
    return false;
  }
  const Bytes message = message_of(call.operation, call.x.bytes(), communicator.world_size());
  return message > Bytes(0) && message <= Transport::small_message;
}

bool Communicator::SmallCall::gets_from(int peer) const {
  return peer != communicator_.rank_ && gives(operation_, root_, peer, communicator_.rank_);
}

Work Communicator::SmallCall::offer(const Asked& call) {
  Transport& transport = communicator_.transport_;
  const int own = communicator_.rank_;
  const DType dtype = call.x.dtype();
  operation_ = call.operation;
  op_ = call.op;
  root_ = call.root;
  message_ = message_of(call.operation, call.x.bytes(), communicator_.world_size());
  const std::int64_t elements = message_.value / size_of(dtype).value;
  const Signature signature = call.signature(communicator_.group_);
  // Handles are counted by atomic operations, which wait for all that was written before them. A
  // message takes long to be written, since the other rank's cache has its line: so not after it.
  out_memory_ = call.out.storage();
  if (reduces(operation_) && call.x.storage() != call.out.storage()) {
    x_memory_ = call.x.storage();
  }
  sends_.clear();
  messages_sent_ = 0;
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (peer == own || !gives(operation_, root_, own, peer)) {
      continue;
    }
    const Transport::Ticket ticket =
        transport.send(communicator_.ranks_[static_cast<std::size_t>(peer)], signature,
                       call.x.lent(gives_blocks(operation_) ? peer * elements : 0, elements));
    ++messages_sent_;
    if (ticket != Transport::over) {
      sends_.push_back(ticket);
      x_memory_ = call.x.storage();
    }
  }
  sequence_ = call.sequence;
  // What follows is done while the messages are under way.
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (gets_from(peer)) {
      tickets_[static_cast<std::size_t>(peer)] = transport.read(
          communicator_.ranks_[static_cast<std::size_t>(peer)], signature, dtype, elements);
    }
  }
  begin_call(transport.board(), call.record(signature));
  traffic_ = &communicator_.traffic_of(call.label);
  place_own(call, elements);
  pending_ = true;
  return Work(*this, sequence_);
}

// Says where the output is and what this rank adds, and moves what is nobody else's. What is added
// is not moved to the output first: it would be read back before it has left for the caches.
void Communicator::SmallCall::place_own(const Asked& call, std::int64_t elements) {
  const int own = communicator_.rank_;
  writes_ = operation_ == Operation::broadcast ? own != root_ : call.out.defined();
  if (!writes_) {
    return;
  }
  out_ = call.out.lent(0, call.out.elements());
  if (operation_ == Operation::broadcast) {
    return;
  }
  own_ = call.x.lent(gives_blocks(operation_) ? own * elements : 0, elements);
  const Tensor place = reduces(operation_) ? out_ : out_.lent(own * elements, elements);
  if (own_.same_view(place)) {
    if (reduces(operation_) && own > 1) {  // the output is written before its turn
      const Tensor copy = communicator_.line_->scratch.take(own_.dtype(), elements);
      communicator_.backend_.copy(copy, own_);
      own_ = copy;
    }
  } else if (!reduces(operation_)) {
    communicator_.backend_.copy(place, own_);
  }
}

void Communicator::SmallCall::collect() {
  if (!pending_) {
    return;
  }
  pending_ = false;
  try {
    collect_all();
    out_memory_.reset();
    x_memory_.reset();
  } catch (const CommunicationError& error) {
    const CallRecord record = call_statement(read(communicator_.transport_.board())).current;
    failed_ = sequence_;
    communicator_.line_->failure =
        std::make_exception_ptr(CommunicationError(communicator_.explain(record, error.what())));
  } catch (...) {
    failed_ = sequence_;
    communicator_.line_->failure = std::current_exception();
  }
}

void Communicator::SmallCall::collect_all() {
  Transport& transport = communicator_.transport_;
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (gets_from(peer)) {
      transport.wait(tickets_[static_cast<std::size_t>(peer)]);
    }
  }
  // A message for which there was no room yet is still to be read from its tensor, which may be the
  // output.
  for (const Transport::Ticket ticket : sends_) {
    transport.wait(ticket);
  }
  if (writes_ && reduces(operation_)) {
    collect_reduced();
  } else if (writes_) {
    collect_blocks();
  }
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (gets_from(peer)) {
      transport.done_reading(tickets_[static_cast<std::size_t>(peer)]);
    }
  }
  end_call(transport.board());
  traffic_->calls += 1;
  traffic_->bytes_sent += messages_sent_ * message_;
}

// out = the contributions, added in the order of the ranks.
void Communicator::SmallCall::collect_reduced() {
  Backend& backend = communicator_.backend_;
  const auto given_by = [&](int peer) -> const Tensor& {
    if (peer == communicator_.rank_) {
      return own_;
    }
    return communicator_.transport_.reading(tickets_[static_cast<std::size_t>(peer)]);
  };
  if (communicator_.world_size() > 1) {
    backend.combine(out_, given_by(0), given_by(1), op_);
  } else if (!own_.same_view(out_)) {
    backend.copy(out_, own_);
  }
  for (int peer = 2; peer < communicator_.world_size(); ++peer) {
    backend.combine(out_, out_, given_by(peer), op_);
  }
  if (op_ == ReduceOp::avg) {
    backend.divide(out_, communicator_.world_size());
  }
  if (communicator_.rank_ > 1) {
    own_ = {};
    communicator_.line_->scratch.reset();
  }
}

// The others' blocks to their places; of a broadcast, the root's.
void Communicator::SmallCall::collect_blocks() {
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (gets_from(peer)) {
      const Tensor& given =
          communicator_.transport_.reading(tickets_[static_cast<std::size_t>(peer)]);
      const std::int64_t first = operation_ == Operation::broadcast ? 0 : peer * given.elements();
      communicator_.backend_.copy(out_.lent(first, given.elements()), given);
    }
  }
}

void Communicator::SmallCall::wait(std::int64_t sequence) {
  done(sequence);
  if (sequence == failed_) {
    std::rethrow_exception(communicator_.line_->failure);
  }
}

bool Communicator::SmallCall::done(std::int64_t sequence) {
  if (sequence == sequence_) {
    collect();
  }
  return true;
}

}  // namespace ringworld
