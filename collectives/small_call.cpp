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

Tensor block(const Tensor& whole, int index, std::int64_t elements) {
  return whole.slice(index * elements, elements);
}

}  // namespace

Communicator::SmallCall::SmallCall(Communicator& communicator)
    : communicator_(communicator), tickets_(communicator.ranks_.size()) {}

bool Communicator::SmallCall::serves(const Communicator& communicator, const Call& call) {
  if (!communicator.reaches_small_ || !is_one_step(*call.algorithm) || call.uneven ||
      call.widens()) {
    return false;
  }
  const Bytes message = call.x.elements() /
                        (gives_blocks(call.operation) ? communicator.world_size() : 1) *
                        size_of(call.dtype());
  return message > Bytes(0) && message <= Transport::small_message;
}

void Communicator::SmallCall::offer(Call&& call) {
  call_.operation = call.operation;
  call_.out = std::move(call.out);
  call_.x = std::move(call.x);
  call_.op = call.op;
  call_.root = call.root;
  call_.label.swap(call.label);
  call_.algorithm = call.algorithm;
  call_.algorithm_hash = call.algorithm_hash;
  call_.sequence = call.sequence;
  record_ = call_.record(communicator_.group_);
  failure_ = nullptr;
  sends_.clear();
  Transport& transport = communicator_.transport_;
  begin_call(transport.board(), record_);
  const int own = communicator_.rank_;
  const bool blocks = gives_blocks(call_.operation);
  const std::int64_t elements = call_.x.elements() / (blocks ? communicator_.world_size() : 1);
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (peer == own) {
      continue;
    }
    const int rank = communicator_.ranks_[static_cast<std::size_t>(peer)];
    if (gives(call_.operation, call_.root, own, peer)) {
      sends_.push_back(blocks
                           ? transport.send(rank, record_.signature, block(call_.x, peer, elements))
                           : transport.send(rank, record_.signature, call_.x));
    }
    if (gives(call_.operation, call_.root, peer, own)) {
      tickets_[static_cast<std::size_t>(peer)] =
          transport.read(rank, record_.signature, call_.dtype(), elements);
    }
  }
  pending_ = true;
}

void Communicator::SmallCall::collect() {
  if (!pending_) {
    return;
  }
  pending_ = false;
  try {
    collect_all();
  } catch (const CommunicationError& error) {
    failure_ =
        std::make_exception_ptr(CommunicationError(communicator_.explain(record_, error.what())));
  } catch (...) {
    failure_ = std::current_exception();
  }
  call_.x = {};
  call_.out = {};
}

void Communicator::SmallCall::collect_all() {
  Transport& transport = communicator_.transport_;
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (peer != communicator_.rank_ &&
        gives(call_.operation, call_.root, peer, communicator_.rank_)) {
      transport.wait(tickets_[static_cast<std::size_t>(peer)]);
    }
  }
  // A message for which there was no room yet is still to be read from its tensor, which may be the
  // output.
  for (const Transport::Ticket ticket : sends_) {
    transport.wait(ticket);
  }
  if (reduces(call_.operation)) {
    collect_reduced();
  } else {
    collect_blocks();
  }
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (peer != communicator_.rank_ &&
        gives(call_.operation, call_.root, peer, communicator_.rank_)) {
      transport.done_reading(tickets_[static_cast<std::size_t>(peer)]);
    }
  }
  communicator_.line_->scratch.reset();
  end_call(transport.board());
  const std::int64_t message =
      call_.x.bytes().value / (gives_blocks(call_.operation) ? communicator_.world_size() : 1);
  communicator_.count(call_.label, static_cast<std::int64_t>(sends_.size()) * message);
}

// out = the contributions, added in the order of the ranks.
void Communicator::SmallCall::collect_reduced() {
  if (!call_.out.defined()) {
    return;  // not the root
  }
  Backend& backend = communicator_.backend_;
  const int own = communicator_.rank_;
  // By address: a handle is counted by all threads, and copies of it are what this would cost most.
  Tensor own_block;
  if (call_.operation == Operation::reduce_scatter) {
    own_block = block(call_.x, own, call_.out.elements());
  }
  const Tensor* mine = own_block.defined() ? &own_block : &call_.x;
  Tensor aside;
  if (own > 1 && mine->same_view(call_.out)) {  // the output is written before its turn
    aside = communicator_.line_->scratch.take(mine->dtype(), mine->elements());
    backend.copy(aside, *mine);
    mine = &aside;
  }
  Tensor other;
  const auto given_by = [&](int peer) -> const Tensor& {
    if (peer == own) {
      return *mine;
    }
    other = communicator_.transport_.reading(tickets_[static_cast<std::size_t>(peer)]);
    return other;
  };
  if (communicator_.world_size() == 1) {
    backend.copy(call_.out, *mine);
  } else if (own == 0) {
    backend.combine(call_.out, *mine, given_by(1), call_.op);
  } else {
    const Tensor first = communicator_.transport_.reading(tickets_.front());
    backend.combine(call_.out, first, given_by(1), call_.op);
  }
  for (int peer = 2; peer < communicator_.world_size(); ++peer) {
    backend.combine(call_.out, call_.out, given_by(peer), call_.op);
  }
  if (call_.op == ReduceOp::avg) {
    backend.divide(call_.out, communicator_.world_size());
  }
}

// Every rank's block to its place; of a broadcast, the root's.
void Communicator::SmallCall::collect_blocks() {
  Backend& backend = communicator_.backend_;
  const int own = communicator_.rank_;
  const bool one = call_.operation == Operation::broadcast;
  const std::int64_t elements =
      one ? call_.out.elements() : call_.out.elements() / communicator_.world_size();
  for (int peer = 0; peer < communicator_.world_size(); ++peer) {
    if (!gives(call_.operation, call_.root, peer, own)) {
      continue;
    }
    const Tensor part = one ? Tensor() : block(call_.out, peer, elements);
    const Tensor& place = one ? call_.out : part;
    if (peer != own) {
      backend.copy(place,
                   communicator_.transport_.reading(tickets_[static_cast<std::size_t>(peer)]));
      continue;
    }
    const Tensor own_block =
        gives_blocks(call_.operation) ? block(call_.x, own, elements) : Tensor();
    const Tensor& mine = own_block.defined() ? own_block : call_.x;
    if (!mine.same_view(place)) {
      backend.copy(place, mine);
    }
  }
}

void Communicator::SmallCall::wait() {
  collect();
  if (failure_ != nullptr) {
    std::rethrow_exception(failure_);
  }
}

bool Communicator::SmallCall::done() {
  collect();
  return true;
}

}  // namespace ringworld
