// How long two cores take to tell each other something, with nothing around it: the bound of what
// two ranks can do in a small collective.
//
// `exchange` is what each rank of an all-reduce, reduce-scatter or all-gather must wait for: both
// write a line of their own and read the other's. `there_and_back` is two broadcasts with roots in
// turn: one writes, the other sees it and writes. Lines are used in turn, so that nobody writes
// what is still being read.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <benchmark/benchmark.h>

#ifdef __linux__
#include <sched.h>
#endif

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

// On the first or the second of the CPUs that this process may use.
void stay_on_own_cpu([[maybe_unused]] int thread) {
#ifdef __linux__
  const CpuMask mask = allowed_cpu_mask();
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

void between_two_cores(benchmark::State& state, bool in_turn) {
  const int thread = state.thread_index();
  stay_on_own_cpu(thread);
  Side& own = sides[static_cast<std::size_t>(thread)];
  const Side& other = sides[static_cast<std::size_t>(1 - thread)];
  static std::array<std::uint32_t, 2> numbers{};  // of the last iteration, in every run
  std::uint32_t& number = numbers[static_cast<std::size_t>(thread)];
  for (auto _ : state) {
    ++number;
    if (!in_turn || thread == 0) {
      say(own, number);
    }
    benchmark::DoNotOptimize(hear(other, number));
    if (in_turn && thread == 1) {
      say(own, number);
    }
  }
}

BENCHMARK_CAPTURE(between_two_cores, exchange, false)->Threads(2)->UseRealTime();
BENCHMARK_CAPTURE(between_two_cores, there_and_back, true)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace ringworld

int main(int argc, char** argv) {
  if (ringworld::allowed_cpus() < 2) {
    std::fputs("two CPUs are needed, and this process may use one\n", stderr);
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
