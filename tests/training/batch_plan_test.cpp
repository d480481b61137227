#include "training/batch_plan.h"

#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

TEST(BatchPlan, GivesTheAccumulationSteps) {
  EXPECT_EQ(plan_batches(32, 4, 1).accumulation_steps, 8);
  EXPECT_EQ(plan_batches(32, 4, 8).accumulation_steps, 1);
  EXPECT_EQ(plan_batches(3, 1, 3).accumulation_steps, 1);
}

TEST(BatchPlan, NamesTheNearestGlobalBatchesThatDivide) {
  expect_error<UsageError>([] { plan_batches(30, 4, 4); },
                           {"--global-batch: 30", "micro-batches of 4", "4 ranks", "16 and 32"});
  expect_error<UsageError>([] { plan_batches(5, 4, 2); }, {"5", "nearest that does: 8"});
}

TEST(BatchPlan, RefusesWhatIsNotPositive) {
  expect_error<UsageError>([] { plan_batches(0, 4, 4); }, {"global batch is 0"});
  expect_error<UsageError>([] { plan_batches(8, -4, 4); }, {"micro-batch is -4"});
}

// Whatever the ranks and micro-batches, a step takes the same positions, each exactly once.
TEST(BatchPlan, EveryLayoutCoversEachPositionOnce) {
  constexpr std::int64_t global_batch = 72;
  constexpr std::int64_t steps = 3;
  for (const std::int64_t ranks : {1, 2, 3, 4, 8}) {
    for (const std::int64_t micro_batch : {1, 3}) {
      const BatchPlan plan = plan_batches(global_batch, micro_batch, ranks);
      for (std::int64_t step = 0; step < steps; ++step) {
        std::vector<int> taken(global_batch * steps);
        for (std::int64_t k = 0; k < plan.accumulation_steps; ++k) {
          for (std::int64_t rank = 0; rank < ranks; ++rank) {
            const std::int64_t first = plan.first_position(step, k, rank);
            for (std::int64_t i = 0; i < micro_batch; ++i) {
              ++taken.at(static_cast<std::size_t>(first + i));
            }
          }
        }
        for (std::int64_t p = 0; p < global_batch * steps; ++p) {
          EXPECT_EQ(taken[static_cast<std::size_t>(p)], p / global_batch == step ? 1 : 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringworld
