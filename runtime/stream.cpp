#include "runtime/stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "runtime/waiting.h"

namespace ringworld {

struct Stream::Item final : Work::Task {
  std::function<void()> body;
  std::shared_ptr<Queue> queue;
  bool is_done = false;  // guarded by the queue's mutex, as is the failure
  std::exception_ptr failure = nullptr;

  void wait() override;
  bool done() override;
};

struct Stream::Queue {
  std::mutex mutex;
  std::condition_variable wake;     // the stream's thread
  std::condition_variable changed;  // who waits for a work
  std::deque<std::shared_ptr<Item>> works;
  std::exception_ptr failure;
  bool wanted = false;   // the thread is to run what there is
  bool running = false;  // some thread runs a work
  bool closing = false;

  // Runs the first work. With the mutex held, which is released meanwhile.
  void run_one(std::unique_lock<std::mutex>& lock) {
    const std::shared_ptr<Item> work = std::move(works.front());
    works.pop_front();
    running = true;
    std::exception_ptr thrown = failure;
    lock.unlock();
    if (thrown == nullptr) {
      try {
        work->body();
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    // Before the waiter goes on, so that what the work held is free when it does.
    work->body = nullptr;
    lock.lock();
    running = false;
    wanted = wanted && !works.empty();
    failure = thrown;
    work->failure = thrown;
    work->is_done = true;
    changed.notify_all();
  }

  void run_all() {
    Waiting::share_core();
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return !running && (wanted || closing); });
      if (!works.empty()) {
        run_one(lock);
        continue;
      }
      wanted = false;
      if (closing) {
        return;
      }
    }
  }
};

void Stream::Item::wait() {
  std::unique_lock lock(queue->mutex);
  while (!is_done) {
    if (queue->running) {
      queue->changed.wait(lock);
    } else {
      queue->run_one(lock);
    }
  }
  if (queue->wanted && !queue->works.empty()) {
    queue->wake.notify_one();  // what follows is the thread's again
  }
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

bool Stream::Item::done() {
  const std::lock_guard lock(queue->mutex);
  if (!is_done) {  // who only asks must not ask forever
    queue->wanted = true;
    queue->wake.notify_one();
  }
  return is_done;
}

Stream::Stream() : queue_(std::make_shared<Queue>()), thread_([this] { queue_->run_all(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->closing = true;
  }
  queue_->wake.notify_one();
  thread_.join();
}

Work Stream::submit(std::function<void()> body, Start start) {
  auto item = std::make_shared<Item>();
  item->body = std::move(body);
  item->queue = queue_;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->wanted = queue_->wanted || start == Start::now || !queue_->works.empty();
    queue_->works.push_back(item);
    if (!queue_->wanted || queue_->running) {
      return Work(std::move(item));
    }
  }
  queue_->wake.notify_one();
  return Work(std::move(item));
}

}  // namespace ringworld
