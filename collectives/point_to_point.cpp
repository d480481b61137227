// Messages between two ranks of a communicator.
//
// They meet by order, as all messages do: the n-th send to a rank is the n-th that it receives from
// here. A send is posted in its turn on the communication stream and does not hold up what is
// called after it, so that two ranks may each send before they receive.
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "collectives/communicator_call.h"
#include "runtime/error.h"

namespace ringworld {

// A send from when it is called until the other rank has what was sent.
class Communicator::Sending final : public Work::Task {
 public:
  Sending(Communicator& communicator, Tensor x, int to, const CallRecord& record)
      : communicator_(communicator), x_(std::move(x)), to_(to), record_(record) {}

  void post() { ticket_ = communicator_.transport_.send(to_, record_.signature, x_); }

  void posted_by(Work posting) { posting_ = std::move(posting); }

  void wait() override {
    posting_.wait();
    if (!over_) {
      communicator_.finish_small();  // which has the board
      // The transport belongs to the stream.
      finish_ =
          communicator_.line_->stream.submit([this] { finish(); }, Stream::Start::when_waited_for);
      communicator_.line_->queued = finish_;
      over_ = true;
    }
    finish_.wait();
  }
  bool done() override { return over_ && finish_.done(); }

 private:
  void finish() {
    begin_call(communicator_.transport_.board(), record_);
    try {
      communicator_.transport_.wait(ticket_);
    } catch (const CommunicationError& error) {
      throw CommunicationError(communicator_.explain(record_, error.what()));
    }
    end_call(communicator_.transport_.board());
    x_ = {};
  }

  Communicator& communicator_;
  Tensor x_;
  const int to_;  // rank of the transport
  const CallRecord record_;
  Transport::Ticket ticket_ = 0;
  Work posting_;
  Work finish_;
  bool over_ = false;
};

CallRecord Communicator::message_record(const Tensor& x, int from, int to, std::int64_t number,
                                        std::string_view label) const {
  CallRecord record;
  record.sequence = number;
  record.elements = x.elements();
  record.root = ranks_[static_cast<std::size_t>(from)];
  record.operation = Operation::broadcast;
  record.dtype = x.dtype();
  record.algorithm = CutText<3>(from == rank_ ? "send" : "receive");
  record.label = CutText<6>(label);
  Signature hash = mixed(group_, static_cast<std::uint64_t>(number));
  hash = mixed(hash, static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to));
  hash = mixed(hash, static_cast<std::uint64_t>(record.elements));
  hash = mixed(mixed(hash, static_cast<std::uint64_t>(record.dtype)), label);
  record.signature = hash ^ hash >> 32;
  return record;
}

void Communicator::check_peer(std::string_view call, int peer) const {
  if (peer < 0 || peer >= world_size() || peer == rank_) {
    throw std::invalid_argument(
        fmt::format("{}: rank {} of {}, by rank {}", call, peer, world_size(), rank_));
  }
}

Work Communicator::send(const Tensor& x, int to, std::string_view label) {
  check_peer("send", to);
  begin();
  const auto peer = static_cast<std::size_t>(to);
  const CallRecord record = message_record(x, rank_, to, ++messages_[peer].sent, label);
  auto sending = std::make_shared<Sending>(*this, flat(x), ranks_[peer], record);
  // Posting takes no time, so nobody is woken for it where nothing is in its way.
  const bool at_once = line_->queued.done();
  last_ = line_->stream.submit(
      [this, sending, label = std::string(label), bytes = x.bytes()] {
        sending->post();
        count(label, bytes.value);
      },
      at_once ? Stream::Start::when_waited_for : Stream::Start::now);
  line_->queued = last_;
  sending->posted_by(last_);
  if (at_once) {
    last_.wait();
  }
  return Work(sending);
}

Work Communicator::receive(const Tensor& out, int from, std::string_view label) {
  check_peer("receive", from);
  begin();
  const auto peer = static_cast<std::size_t>(from);
  const CallRecord record = message_record(out, from, rank_, ++messages_[peer].received, label);
  last_ = line_->stream.submit(
      [this, out = flat(out), rank = ranks_[peer], record] {
        begin_call(transport_.board(), record);
        try {
          transport_.wait(transport_.receive(rank, record.signature, out));
        } catch (const CommunicationError& error) {
          throw CommunicationError(explain(record, error.what()));
        }
        end_call(transport_.board());
      },
      out.bytes() <= short_call ? Stream::Start::when_waited_for : Stream::Start::now);
  line_->queued = last_;
  return last_;
}

}  // namespace ringworld
