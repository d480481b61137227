// How a rank waits for another one.
//
// Spinning is best while every rank of the machine has a core of its own and fatal when not: the
// rank that is waited for may need this very core, and gets it only when the scheduler's time slice
// ends. So a waiting thread spins only with a core of its own, then yields, then sleeps, so that a
// long wait costs nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace ringworld {

class Waiting {
 public:
  // `own_core`: every rank of this machine has one. `timeout` zero: forever.
  Waiting(bool own_core, std::chrono::milliseconds timeout)
      : spins_(own_core && !shares_core_ ? spins : 0), timeout_(timeout) {}

  // Pauses before the next look, while that is to be soon. Returns false when it is time to sleep
  // instead, through sleep or otherwise.
  bool pause() {
    ++looks_;
    if (looks_ <= spins_) {
      relax();
      return true;
    }
    return pause_long();
  }

  // True when the timeout is over. Only between sleeps: no clock is read on the fast path.
  bool expired();
  // Sleeps for a while, longer every time: up to 0.2 ms soon, then about a hundredth of what it has
  // waited, up to 2 ms.
  void sleep();

  // This thread runs beside one that computes for the same rank, and leaves it the core.
  static void share_core() { shares_core_ = true; }

 private:
  static constexpr int spins = 3000;  // about 100 us
  static constexpr int yields = 500;

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  bool pause_long();

  static inline thread_local bool shares_core_ = false;

  const int spins_;
  int looks_ = 0;
  const std::chrono::milliseconds timeout_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::chrono::nanoseconds sleep_{20'000};
};

// Sleeps until `word`, which may be in memory shared with other processes and mapped for reading
// only, is another than `value` and its changer has called wake_sleepers, or for `limit`. May
// return early.
void sleep_while_equal(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                       std::chrono::nanoseconds limit);
void wake_sleepers(const std::atomic<std::uint32_t>& word);

// From here on barrier_for_all of other processes reaches this one.
void take_part_in_barriers();
// Makes every thread of every process that takes part pass a memory barrier. False where the system
// has none: then a sleeper may be overlooked once, and must not sleep long.
bool barrier_for_all();

}  // namespace ringworld
