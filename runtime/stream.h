// A stream: a thread that runs what it is given, one after the other, in order.
//
// Collectives run on the communication stream while the main thread computes. What was submitted is
// a Work; an exception inside it is rethrown by wait. After an exception the stream runs nothing
// more: later works fail with the same exception, since peers no longer agree on what comes next.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace ringworld {

class Work {
 public:
  Work() = default;  // nothing to wait for
  void wait();       // returns when done, rethrows what the work threw; may be called again
  bool done() const;

 private:
  friend class Stream;
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  Stream();
  ~Stream();  // runs what was submitted, then ends the thread
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] Work submit(std::function<void()> body);

 private:
  struct Item;
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> queue_;
  std::exception_ptr failure_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace ringworld
