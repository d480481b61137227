#include "runtime/async_io.h"

#ifdef RINGWORLD_IO_URING

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include <liburing.h>

namespace ringworld {
namespace {

class Request;

// The queues shared with the kernel. Who waits for a request holds the mutex until some request is
// over: it is over whatever other threads do.
class Ring {
 public:
  Ring() : error_(io_uring_queue_init(entries, &ring_, 0)) {}
  ~Ring() {
    if (error_ == 0) {
      io_uring_queue_exit(&ring_);
    }
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  int error() const { return -error_; }  // of setting it up; 0: none
  void submit(Request& request);
  void wait(Request& request);
  bool done(Request& request);

 private:
  static constexpr unsigned entries = 64;
  void submit_locked(Request& request);
  void complete(io_uring_cqe* completion);

  std::mutex mutex_;
  io_uring ring_{};
  const int error_;
};

// One range. The kernel may move a part of it; the rest is then asked for again.
class Request final : public Work::Task {
 public:
  Request(std::shared_ptr<Ring> ring, bool writes, int file, std::byte* at, std::size_t bytes,
          std::int64_t offset)
      : ring_(std::move(ring)),
        writes_(writes),
        file_(file),
        at_(at),
        left_(bytes),
        offset_(offset),
        finished_(bytes == 0) {}
  ~Request() override { ring_->wait(*this); }  // the kernel knows its address

  void wait() override {
    ring_->wait(*this);
    if (error_ != 0) {
      throw std::system_error(error_, std::generic_category());
    }
  }
  bool done() override { return ring_->done(*this); }

  // The rest, for the ring with its mutex held.
  bool finished() const { return finished_; }
  void fail(int error) {
    error_ = error;
    finished_ = true;
  }
  void prepare(io_uring_sqe* entry) const {
    // A request of the kernel's counts bytes in 32 bits.
    const auto bytes = static_cast<unsigned>(std::min<std::size_t>(left_, 1 << 30));
    if (writes_) {
      io_uring_prep_write(entry, file_, at_, bytes, static_cast<std::uint64_t>(offset_));
    } else {
      io_uring_prep_read(entry, file_, at_, bytes, static_cast<std::uint64_t>(offset_));
    }
  }
  // `result` is the bytes moved, or an error below 0.
  void advance(int result) {
    // Canceled: the thread that asked for it ended first.
    if (result == -EINTR || result == -EAGAIN || result == -ECANCELED) {
      return;
    }
    if (result <= 0) {
      fail(result < 0 ? -result : EIO);
      return;
    }
    at_ += result;
    left_ -= static_cast<std::size_t>(result);
    offset_ += result;
    finished_ = left_ == 0;
  }

 private:
  const std::shared_ptr<Ring> ring_;
  const bool writes_;
  const int file_;
  std::byte* at_;
  std::size_t left_;
  std::int64_t offset_;
  int error_ = 0;
  bool finished_;
};

void Ring::submit(Request& request) {
  const std::lock_guard lock(mutex_);
  if (!request.finished()) {
    submit_locked(request);
  }
}

void Ring::submit_locked(Request& request) {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);  // every one is submitted at once
  request.prepare(entry);
  io_uring_sqe_set_data(entry, &request);
  for (;;) {
    const int submitted = io_uring_submit(&ring_);
    if (submitted >= 0) {
      return;
    }
    if (submitted == -EBUSY || submitted == -EAGAIN) {
      std::this_thread::yield();  // the kernel is short of memory for requests
    } else if (submitted != -EINTR) {
      // It stays in the queue: as one that does nothing for nobody.
      io_uring_prep_nop(entry);
      io_uring_sqe_set_data(entry, nullptr);
      request.fail(-submitted);
      return;
    }
  }
}

void Ring::complete(io_uring_cqe* completion) {
  auto* const request = static_cast<Request*>(io_uring_cqe_get_data(completion));
  const int result = completion->res;
  io_uring_cqe_seen(&ring_, completion);
  if (request != nullptr) {
    request->advance(result);
    if (!request->finished()) {
      submit_locked(*request);
    }
  }
}

void Ring::wait(Request& request) {
  const std::lock_guard lock(mutex_);
  while (!request.finished()) {
    io_uring_cqe* completion = nullptr;
    if (io_uring_wait_cqe(&ring_, &completion) == 0) {
      complete(completion);
    }
  }
}

bool Ring::done(Request& request) {
  const std::lock_guard lock(mutex_);
  io_uring_cqe* completion = nullptr;
  while (!request.finished() && io_uring_peek_cqe(&ring_, &completion) == 0) {
    complete(completion);
  }
  return request.finished();
}

class UringIo final : public AsyncIo {
 public:
  explicit UringIo(std::shared_ptr<Ring> ring) : ring_(std::move(ring)) {}
  std::string_view name() const override { return "io_uring"; }

  Work read(int file, std::span<std::byte> to, std::int64_t offset) override {
    return begin(false, file, to.data(), to.size(), offset);
  }
  Work write(int file, std::span<const std::byte> from, std::int64_t offset) override {
    return begin(true, file, const_cast<std::byte*>(from.data()), from.size(), offset);
  }

 private:
  Work begin(bool writes, int file, std::byte* at, std::size_t bytes, std::int64_t offset) {
    auto request = std::make_shared<Request>(ring_, writes, file, at, bytes, offset);
    ring_->submit(*request);
    return Work(std::move(request));
  }

  const std::shared_ptr<Ring> ring_;
};

}  // namespace

std::unique_ptr<AsyncIo> make_uring_io(std::string& why_not) {
  auto ring = std::make_shared<Ring>();
  if (ring->error() != 0) {
    why_not = std::strerror(ring->error());
    return nullptr;
  }
  return std::make_unique<UringIo>(std::move(ring));
}

}  // namespace ringworld

#else

namespace ringworld {

std::unique_ptr<AsyncIo> make_uring_io(std::string& why_not) {
  why_not = "this system has no io_uring";
  return nullptr;
}

}  // namespace ringworld

#endif
