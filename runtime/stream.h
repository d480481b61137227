// A stream: what it is given runs one after the other, in order, beside the thread that gives it.
//
// Collectives run on the communication stream while the main thread computes. What was submitted is
// a Work; an exception inside it is rethrown by wait. After an exception the stream runs nothing
// more: later works fail with the same exception, since peers no longer agree on what comes next.
//
// The stream has a thread, but who waits for a work that has not begun runs it, and all before it,
// on its own thread: handing it over would cost two switches between threads. A short work may be
// left for that, and then begins when it is waited for or when the next one is submitted. Works run
// on one thread at a time, whichever it is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

namespace ringworld {

class Work {
 public:
  // What can be waited for: a work of a stream, or of whoever else has some.
  class Task {
   public:
    virtual ~Task() = default;
    virtual void wait() = 0;
    // May itself do what is left to do, and then takes as long.
    virtual bool done() = 0;
  };

  // One that does task after task, of which each has a number: its works cost no counting of who
  // holds them. It must outlive what is asked of them.
  class Series {
   public:
    virtual void wait(std::int64_t number) = 0;
    virtual bool done(std::int64_t number) = 0;

   protected:
    ~Series() = default;
  };

  Work() = default;  // nothing to wait for
  explicit Work(std::shared_ptr<Task> task) : task_(std::move(task)) {}
  Work(Series& series, std::int64_t number) : series_(&series), number_(number) {}

  // Returns when done, rethrows what the work threw; may be called again.
  void wait() {
    if (series_ != nullptr) {
      series_->wait(number_);
    } else if (task_ != nullptr) {
      task_->wait();
    }
  }
  bool done() const {
    return series_ != nullptr ? series_->done(number_) : task_ == nullptr || task_->done();
  }

 private:
  std::shared_ptr<Task> task_;
  Series* series_ = nullptr;
  std::int64_t number_ = 0;
};

class Stream {
 public:
  enum class Start { now, when_waited_for };

  Stream();
  ~Stream();  // runs what was submitted, then ends the thread
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] Work submit(std::function<void()> body, Start start = Start::now);

 private:
  struct Item;
  struct Queue;
  std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace ringworld
