// How long two cores take to tell each other something, with nothing around it: the bound of what
// two ranks can do in a small collective.
//
// `exchange` is what each rank of an all-reduce, reduce-scatter or all-gather must wait for: both
// write a line of their own and read the other's. `there and back` is two broadcasts with roots in
// turn: one writes, the other sees it and writes. Lines are used in turn, so that nobody writes
// what is still being read.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <thread>

#include <fmt/format.h>

#ifdef __linux__
#include <sched.h>
#endif

#include "runtime/clock.h"
#include "runtime/cpus.h"

namespace ringworld {
namespace {

// Two lines of the processor's, which fetches neighbours in pairs.
struct alignas(128) Line {
  std::atomic<std::uint32_t> number{0};
  std::uint32_t value = 0;
};
constexpr std::uint32_t lines = 8;
using Side = std::array<Line, lines>;

std::array<Side, 2> sides;

// On the first or the second of the CPUs that this process may use, asked before there are threads
// that may use one only.
const CpuMask mask = allowed_cpu_mask();
void stay_on_own_cpu([[maybe_unused]] int thread) {
#ifdef __linux__
  for (int cpu = 0; cpu < static_cast<int>(64 * mask.size()); ++cpu) {
    const bool allowed = (mask[static_cast<std::size_t>(cpu / 64)] >> (cpu % 64) & 1) != 0;
    if (allowed && thread-- == 0) {
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(cpu, &own);
      sched_setaffinity(0, sizeof own, &own);
    }
  }
#endif
}

void say(Side& side, std::uint32_t number) {
  Line& line = side[number % lines];
  line.value = number;
  line.number.store(number, std::memory_order_release);
}

std::uint32_t hear(const Side& side, std::uint32_t number) {
  const Line& line = side[number % lines];
  while (line.number.load(std::memory_order_acquire) != number) {
  }
  return line.value;
}

// Nanoseconds for each of many exchanges.
double between_two_cores(bool in_turn) {
  constexpr std::uint32_t exchanges = 200'000;
  static std::uint32_t number = 0;  // of the last exchange so far
  std::barrier together(2);
  double seconds = 0;
  const auto side = [&](std::size_t which) {
    stay_on_own_cpu(static_cast<int>(which));
    together.arrive_and_wait();
    const Clock::time_point begin = Clock::now();
    std::uint32_t heard = 0;
    for (std::uint32_t i = number + 1; i <= number + exchanges; ++i) {
      if (!in_turn || which == 0) {
        say(sides[which], i);
      }
      heard += hear(sides[1 - which], i);
      if (in_turn && which == 1) {
        say(sides[which], i);
      }
    }
    if (which == 0) {
      seconds = seconds_since(begin) + 0.0 * heard;  // what is heard is not to be left out
    }
  };
  std::jthread second(side, 1);
  std::jthread first(side, 0);
  first.join();
  second.join();
  number += exchanges;
  return seconds * 1e9 / exchanges;
}

void report(const char* name, bool in_turn) {
  std::array<double, 21> times;
  for (double& time : times) {
    time = between_two_cores(in_turn);
  }
  std::ranges::sort(times);
  fmt::print("{:<16}{:>6.0f} ns, {:.0f} to {:.0f} in 21 runs\n", name, times[10], times.front(),
             times.back());
}

}  // namespace
}  // namespace ringworld

int main() {
  if (ringworld::allowed_cpus() < 2) {
    fmt::print(stderr, "two CPUs are needed, and this process may use one\n");
    return 2;
  }
  ringworld::report("exchange", false);
  ringworld::report("there and back", true);
}
