// Times of a benchmark: how many are taken of how many calls, and that they are the slowest rank's.
#include "cli/bench_measure.h"

#include <gtest/gtest.h>

#include "collectives/schedule.h"
#include "tests/collectives/on_threads.h"

namespace ringworld {
namespace {

constexpr int measured_ranks = 3;

// Of a call of `bytes`, by the algorithms in turn.
std::vector<Timing> measured(Communicator& communicator, Operation operation, Bytes bytes,
                             const std::vector<const char*>& algorithms,
                             const MeasureOptions& options) {
  const BufferSize size = fit(operation, bytes, DType::f32, measured_ranks);
  BenchCall call(communicator, nullptr, operation, DType::f32, ReduceOp::sum, 0, size);
  std::vector<Contender> contenders;
  for (const char* algorithm : algorithms) {
    contenders.push_back(
        {&find_algorithm(operation, algorithm), operation == Operation::broadcast});
  }
  return measure(communicator, call, size, contenders, options);
}

TEST(BenchMeasureTest, TakesAsManyTimesAsAsked) {
  run_communicators(measured_ranks, [](Communicator& communicator) {
    for (const std::int64_t iterations : {1, 3, 6}) {
      const std::vector<Timing> timings =
          measured(communicator, Operation::all_reduce, Bytes(1 << 20), {"ring", "tree"},
                   {.iterations = iterations});
      ASSERT_EQ(timings.size(), 2);
      for (const Timing& timing : timings) {
        EXPECT_EQ(timing.iterations, iterations);
        EXPECT_GE(timing.calls_per_iteration, 1);
        EXPECT_GT(timing.min, 0);
        EXPECT_LE(timing.min, timing.median);
        EXPECT_LE(timing.median, timing.max);
      }
    }
  });
}

TEST(BenchMeasureTest, EveryIterationHasACallForEveryRoot) {
  run_communicators(measured_ranks, [](Communicator& communicator) {
    for (const Bytes bytes : {Bytes(4), Bytes(1 << 20)}) {
      const std::vector<Timing> timings = measured(communicator, Operation::broadcast, bytes,
                                                   {"tree", "direct"}, {.iterations = 2});
      for (const Timing& timing : timings) {
        EXPECT_EQ(timing.calls_per_iteration % measured_ranks, 0);
      }
    }
  });
}

TEST(BenchMeasureTest, TimesAreTheSameOnEveryRank) {
  run_communicators(measured_ranks, [](Communicator& communicator) {
    const Timing timing =
        measured(communicator, Operation::all_gather, Bytes(4096), {"ring"}, {.iterations = 5})[0];
    for (const double value : {timing.min, timing.median, timing.max}) {
      EXPECT_EQ(communicator.all_reduce_value(value, ReduceOp::min, "least"), value);
      EXPECT_EQ(communicator.all_reduce_value(value, ReduceOp::max, "most"), value);
    }
  });
}

}  // namespace
}  // namespace ringworld
