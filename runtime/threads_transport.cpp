// Ranks as threads of one process. Nothing is buffered: a receive copies straight from the sender's
// tensor, on the receiver's thread, and the send completes then; what is read is the sender's
// memory itself, which the reader does not keep alive. That makes it the strictest transport there
// is, and one that ThreadSanitizer can see through.
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/error.h"
#include "runtime/transport.h"

namespace ringworld {
namespace {

// A posted verb; all of it is guarded by the hub's mutex.
struct Posted {
  enum class State {
    unmatched,
    matched,  // both ends are posted; the receiver's thread has not begun
    moving,   // the receiver's thread reads the sender's tensor: copies it, or holds it
    done,
    withdrawn,  // a send whose rank gave up before it was read
  };

  int peer = 0;
  bool is_send = false;
  Signature signature = 0;
  Tensor tensor;
  DType dtype = DType::f32;
  std::int64_t elements = 0;
  bool reads = false;  // of a receive: the sender's tensor is held instead of copied
  State state = State::unmatched;
  std::shared_ptr<Posted> send;  // of a matched receive
  std::string failure;           // why it will never complete, if so
};
using PostedHandle = std::shared_ptr<Posted>;

// What was posted from one rank to another, in order. One of the two is empty.
struct Mailbox {
  std::deque<PostedHandle> sends;
  std::deque<PostedHandle> receives;
};

// What all ranks share.
struct Hub {
  explicit Hub(int world_size)
      : wake(world_size), arrived(world_size), gone(world_size), boards(world_size) {}

  void wake_all() {
    for (std::condition_variable& one : wake) {
      one.notify_all();
    }
  }

  std::mutex mutex;
  std::vector<std::condition_variable> wake;         // by rank
  std::vector<std::deque<PostedHandle>> arrived;     // by receiver: matched, not yet moved
  std::vector<std::string> gone;                     // by rank: why it will post nothing more
  std::vector<Board> boards;                         // by rank
  std::map<std::pair<int, int>, Mailbox> mailboxes;  // by sender and receiver
  std::optional<int> failed_rank;                    // whose body threw first; see run_rank
  std::exception_ptr failure;
};

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(Hub& hub, int rank, int world_size)
      : hub_(hub), rank_(rank), world_size_(world_size) {}

  ~ThreadsTransport() override {
    const std::lock_guard lock(hub_.mutex);
    end_readings();
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  int local_ranks() const override { return world_size(); }
  std::string_view name() const override { return "threads"; }
  std::string description() const override { return "threads"; }
  void bind(Backend& backend) override { backend_ = &backend; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

  Ticket send(int to, Signature signature, const Tensor& x) override {
    auto posted = std::make_shared<Posted>();
    posted->peer = to;
    posted->is_send = true;
    posted->signature = signature;
    posted->tensor = x;
    posted->dtype = x.dtype();
    posted->elements = x.elements();
    return post(std::move(posted), {rank_, to});
  }

  Ticket receive(int from, Signature signature, const Tensor& out) override {
    auto posted = std::make_shared<Posted>();
    posted->peer = from;
    posted->signature = signature;
    posted->tensor = out;
    posted->dtype = out.dtype();
    posted->elements = out.elements();
    return post(std::move(posted), {from, rank_});
  }

  Ticket read(int from, Signature signature, DType dtype, std::int64_t elements) override {
    auto posted = std::make_shared<Posted>();
    posted->peer = from;
    posted->signature = signature;
    posted->dtype = dtype;
    posted->elements = elements;
    posted->reads = true;
    return post(std::move(posted), {from, rank_});
  }

  const Tensor& reading(Ticket ticket) override {
    const std::lock_guard lock(hub_.mutex);
    Reading& reading = readings_.at(ticket);
    if (!reading.view.defined()) {
      const Tensor& x = reading.send->tensor;
      const auto memory = std::make_shared<const Storage>(
          nullptr, x.storage()->address(), x.storage()->bytes(), x.storage()->category());
      reading.view = Tensor(x.dtype(), x.shape(), memory, x.first_element());
    }
    return reading.view;
  }

  void done_reading(Ticket ticket) override {
    const std::lock_guard lock(hub_.mutex);
    const PostedHandle send = std::move(readings_.at(ticket).send);
    readings_.erase(ticket);
    finish(*send);
  }

  bool in_place(int /*peer*/) const override { return true; }

  std::size_t wait_any(std::span<const Ticket> tickets) override {
    std::unique_lock lock(hub_.mutex);
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    bool expired = false;
    for (;;) {
      move_arrived(lock);
      for (std::size_t i = 0; i < tickets.size(); ++i) {
        if (forget_done(tickets[i])) {
          return i;
        }
      }
      if (const auto reason = hopeless(tickets)) {
        give_up(lock, *reason);
      }
      if (expired) {
        const Posted& posted = *posted_.at(tickets.front());
        give_up(lock, fmt::format("waited {} for rank {} to {}", to_text(timeout_), posted.peer,
                                  posted.is_send ? "receive" : "send"));
      }
      if (timeout_.count() == 0) {
        hub_.wake[rank_].wait(lock);
      } else {
        expired = hub_.wake[rank_].wait_until(lock, deadline) == std::cv_status::timeout;
      }
    }
  }

  bool test(Ticket ticket) override {
    std::unique_lock lock(hub_.mutex);
    move_arrived(lock);
    if (forget_done(ticket)) {
      return true;
    }
    if (const auto reason = hopeless({&ticket, 1})) {
      give_up(lock, *reason);
    }
    return false;
  }

  Board& board() override { return hub_.boards[rank_]; }

  std::vector<std::optional<Said>> statements(std::chrono::milliseconds /*patience*/) override {
    std::vector<std::optional<Said>> statements;
    for (const Board& board : hub_.boards) {
      statements.push_back(Said{ringworld::read(board), true});
    }
    return statements;
  }

  void abandon() override {
    const std::lock_guard lock(hub_.mutex);
    abandoned_ = true;
    hub_.wake[rank_].notify_all();
  }

 private:
  // Whether it is complete.
  bool forget_done(Ticket ticket) {
    const auto found = posted_.find(ticket);
    if (found->second->state != Posted::State::done) {
      return false;
    }
    if (found->second->reads) {
      readings_.emplace(ticket, Reading{.send = std::move(found->second->send)});
    }
    posted_.erase(found);
    return true;
  }

  static std::string to_text(std::chrono::milliseconds time) {
    return fmt::format("{} s", static_cast<double>(time.count()) / 1000);
  }

  Ticket post(PostedHandle posted, const std::pair<int, int>& address) {
    const std::lock_guard lock(hub_.mutex);
    if (!broken_.empty()) {
      throw CommunicationError(broken_);
    }
    Mailbox& mailbox = hub_.mailboxes[address];
    (posted->is_send ? mailbox.sends : mailbox.receives).push_back(posted);
    if (!mailbox.sends.empty() && !mailbox.receives.empty()) {
      match(mailbox.sends.front(), mailbox.receives.front());
      mailbox.sends.pop_front();
      mailbox.receives.pop_front();
    }
    if (mailbox.sends.empty() && mailbox.receives.empty()) {
      hub_.mailboxes.erase(address);
    }
    const Ticket ticket = next_ticket_++;
    posted_.emplace(ticket, std::move(posted));
    return ticket;
  }

  void match(const PostedHandle& send, const PostedHandle& receive) {
    const int sender = receive->peer;
    const int receiver = send->peer;
    if (send->signature != receive->signature || send->elements != receive->elements ||
        send->dtype != receive->dtype) {
      const std::string what = fmt::format(
          "in another call (rank {} sends {} elements of {}, rank {} receives {} of {})", sender,
          send->elements, name_of(send->dtype), receiver, receive->elements,
          name_of(receive->dtype));
      send->failure = fmt::format("meets rank {} {}", receiver, what);
      receive->failure = fmt::format("meets rank {} {}", sender, what);
    } else if (send->state == Posted::State::withdrawn) {
      receive->failure = send->failure;
    } else {
      send->state = receive->state = Posted::State::matched;
      receive->send = send;
      hub_.arrived[receiver].push_back(receive);
    }
    hub_.wake[sender].notify_all();
    hub_.wake[receiver].notify_all();
  }

  // Completes every receive of this rank that has met its send.
  void move_arrived(std::unique_lock<std::mutex>& lock) {
    std::deque<PostedHandle>& arrived = hub_.arrived[rank_];
    while (!arrived.empty() && !broken_now()) {
      const PostedHandle receive = arrived.front();
      arrived.pop_front();
      PostedHandle send = std::exchange(receive->send, nullptr);
      if (send->state == Posted::State::withdrawn) {
        receive->failure = send->failure;
        continue;
      }
      if (receive->reads) {
        send->state = Posted::State::moving;
        receive->state = Posted::State::done;
        receive->send = send;
        continue;
      }
      send->state = receive->state = Posted::State::moving;
      lock.unlock();
      const std::exception_ptr failure = move(*receive, *send);
      lock.lock();
      hub_.wake[receive->peer].notify_all();
      if (failure) {
        send->state = receive->state = Posted::State::unmatched;
        send->failure = fmt::format("rank {} failed to take the message", rank_);
        std::rethrow_exception(failure);
      }
      send->state = receive->state = Posted::State::done;
    }
  }

  std::exception_ptr move(const Posted& receive, const Posted& send) {
    try {
      backend_->copy(receive.tensor, send.tensor);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  // With the mutex held: the rank that sent it may go on.
  void finish(Posted& send) {
    send.tensor = Tensor();  // before that rank can see it: what it holds is its own business then
    send.state = Posted::State::done;
    hub_.wake_all();
  }

  void end_readings() {
    for (auto& [ticket, reading] : readings_) {
      finish(*reading.send);
    }
    readings_.clear();
    for (auto& [ticket, posted] : posted_) {
      if (posted->reads && posted->state == Posted::State::done) {
        finish(*posted->send);
      }
    }
  }

  bool broken_now() const { return !broken_.empty() || abandoned_ || hub_.failed_rank; }

  // Why waiting makes no sense, if it does not.
  std::optional<std::string> hopeless(std::span<const Ticket> tickets) const {
    if (!broken_.empty()) {
      return broken_;
    }
    if (abandoned_) {
      return "ends its communication";
    }
    if (hub_.failed_rank) {
      return fmt::format("rank {} ended with an error", *hub_.failed_rank);
    }
    for (const Ticket ticket : tickets) {
      const Posted& posted = *posted_.at(ticket);
      if (!posted.failure.empty()) {
        return posted.failure;
      }
      if (posted.state == Posted::State::unmatched && !hub_.gone[posted.peer].empty()) {
        return fmt::format("waits for rank {} to {}, but rank {} {}", posted.peer,
                           posted.is_send ? "receive" : "send", posted.peer,
                           hub_.gone[posted.peer]);
      }
    }
    return std::nullopt;
  }

  // Takes back what was not read yet, waits for what is being read, and throws: afterwards nobody
  // touches this rank's tensors.
  [[noreturn]] void give_up(std::unique_lock<std::mutex>& lock, const std::string& reason) {
    if (broken_.empty()) {
      broken_ = fmt::format("rank {} {}", rank_, reason);
      if (hub_.gone[rank_].empty()) {
        hub_.gone[rank_] = "has given up: it " + reason;
      }
    }
    end_readings();
    for (const auto& entry : posted_) {
      const auto& posted = entry.second;
      if (!posted->is_send) {
        continue;
      }
      hub_.wake[rank_].wait(lock, [&] { return posted->state != Posted::State::moving; });
      if (posted->state != Posted::State::done) {
        posted->state = Posted::State::withdrawn;
        posted->failure = broken_;
      }
    }
    hub_.wake_all();
    throw CommunicationError(broken_);
  }

  Hub& hub_;
  const int rank_;
  const int world_size_;
  Backend* backend_ = nullptr;
  std::chrono::milliseconds timeout_{0};
  std::unordered_map<Ticket, PostedHandle> posted_;
  struct Reading {
    PostedHandle send;
    Tensor view = {};  // of its tensor, once it has been asked for
  };
  std::unordered_map<Ticket, Reading> readings_;
  Ticket next_ticket_ = 0;
  bool abandoned_ = false;  // guarded by the hub's mutex
  std::string broken_;      // why, once a wait has thrown
};

bool is_lost_peer(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const CommunicationError&) {
    return true;
  } catch (...) {
    return false;
  }
}

void run_rank(Hub& hub, int rank, int world_size, const std::function<void(Transport&)>& body) {
  ThreadsTransport transport(hub, rank, world_size);
  std::exception_ptr failure;
  try {
    body(transport);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(hub.mutex);
  // A rank that lost its peer may be heard before the one that made it so: the cause counts.
  const bool is_cause = failure && !is_lost_peer(failure);
  if (failure && (!hub.failed_rank || (is_cause && is_lost_peer(hub.failure)))) {
    hub.failed_rank = rank;
    hub.failure = failure;
  }
  if (hub.gone[rank].empty()) {
    hub.gone[rank] = "has returned";
  }
  hub.wake_all();
}

[[noreturn]] void rethrow_with_rank(const std::exception_ptr& failure, int rank) {
  const auto text = [rank](const std::exception& error) {
    return fmt::format("rank {}: {}", rank, error.what());
  };
  try {
    std::rethrow_exception(failure);
  } catch (const UsageError& error) {
    throw UsageError(text(error));
  } catch (const DataError& error) {
    throw DataError(text(error));
  } catch (const OutOfDeviceMemory& error) {
    throw OutOfDeviceMemory(text(error));
  } catch (const CommunicationError& error) {
    throw CommunicationError(text(error));
  } catch (const NumericalError& error) {
    throw NumericalError(text(error));
  } catch (const Error& error) {
    throw Error(error.code(), text(error));
  } catch (const std::exception& error) {
    throw std::runtime_error(text(error));
  }
}

}  // namespace

void run_on_threads(int world_size, const std::function<void(Transport&)>& body) {
  Hub hub(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] { run_rank(hub, rank, world_size, body); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (hub.failed_rank) {
    rethrow_with_rank(hub.failure, *hub.failed_rank);
  }
}

}  // namespace ringworld
