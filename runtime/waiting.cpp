#include "runtime/waiting.h"

#include <algorithm>
#include <climits>
#include <thread>

#ifdef __linux__
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ringworld {

bool Waiting::pause_long() {
  if (looks_ > spins_ + yields) {
    return false;
  }
  std::this_thread::yield();
  return true;
}

bool Waiting::expired() {
  if (timeout_.count() == 0) {
    return false;
  }
  const auto now = std::chrono::steady_clock::now();
  deadline_ = deadline_.value_or(now + timeout_);
  return now >= *deadline_;
}

void Waiting::sleep() {
#ifdef __linux__
  // Linux rounds a thread's sleeps up by 50 us unless told otherwise.
  thread_local const int sharpened = prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  static_cast<void>(sharpened);
#endif
  std::this_thread::sleep_for(sleep_);
  constexpr std::chrono::nanoseconds soon = std::chrono::microseconds(200);
  constexpr std::chrono::nanoseconds longest = std::chrono::milliseconds(2);
  sleep_ = sleep_ < soon ? std::min(sleep_ * 5 / 4, soon) : std::min(sleep_ * 101 / 100, longest);
}

#ifdef __linux__

void sleep_while_equal(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                       std::chrono::nanoseconds limit) {
  const timespec time{limit.count() / 1'000'000'000, limit.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake_sleepers(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

#else

void sleep_while_equal(const std::atomic<std::uint32_t>&, std::uint32_t,
                       std::chrono::nanoseconds limit) {
  std::this_thread::sleep_for(std::min(limit, std::chrono::nanoseconds(200'000)));
}

void wake_sleepers(const std::atomic<std::uint32_t>&) {}

#endif

void take_part_in_barriers() {
#if defined(__linux__) && defined(SYS_membarrier)
  syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
#endif
}

bool barrier_for_all() {
#if defined(__linux__) && defined(SYS_membarrier)
  return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
#else
  return false;
#endif
}

}  // namespace ringworld
