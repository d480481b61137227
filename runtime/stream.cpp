#include "runtime/stream.h"

#include <stdexcept>
#include <utility>

namespace ringworld {

struct Work::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr failure;

  void finish(std::exception_ptr why) {
    {
      const std::lock_guard lock(mutex);
      done = true;
      failure = std::move(why);
    }
    changed.notify_all();
  }
};

struct Stream::Item {
  std::function<void()> body;
  std::shared_ptr<Work::State> state;
};

void Work::wait() {
  if (state_ == nullptr) {
    return;
  }
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
  if (state_->failure != nullptr) {
    std::rethrow_exception(state_->failure);
  }
}

bool Work::done() const {
  if (state_ == nullptr) {
    return true;
  }
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

Stream::Stream() : thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Work Stream::submit(std::function<void()> body) {
  auto state = std::make_shared<Work::State>();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(body), state});
  }
  wake_.notify_one();
  return Work(std::move(state));
}

void Stream::run() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) {
        return;
      }
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    if (failure_ == nullptr) {
      try {
        item.body();
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
    // Before the waiter goes on, so that what the work held is free when it does.
    item.body = nullptr;
    item.state->finish(failure_);
  }
}

}  // namespace ringworld
