// Hours, dollars and energy; and two trainings whose GPU-hours were published.
#include "planner/cost.h"

#include <gtest/gtest.h>

#include "planner/validate.h"

namespace ringworld {
namespace {

TEST(Cost, IsArithmetic) {
  const CostQuestion q{.tokens = 3.6e12,
                       .tokens_per_second = 1e6,
                       .gpus = 100,
                       .price = 2,
                       .watts = 1000,
                       .overhead = 1.1};
  const Cost high = cost_of(q, EfficiencyCase::high);
  EXPECT_DOUBLE_EQ(high.hours, 1000);
  EXPECT_DOUBLE_EQ(high.days(), 1000.0 / 24);
  EXPECT_DOUBLE_EQ(high.gpu_hours, 1e5);
  EXPECT_DOUBLE_EQ(high.dollars.value(), 2e5);
  EXPECT_DOUBLE_EQ(high.kilowatt_hours.value(), 1.1e5);
  const Cost expected = cost_of(q, EfficiencyCase::expected);
  EXPECT_DOUBLE_EQ(expected.hours, 1000 / 0.9);
  EXPECT_GT(cost_of(q, EfficiencyCase::low).hours, expected.hours);
}

TEST(Cost, WithoutAPriceThereAreNoDollars) {
  const Cost cost =
      cost_of({.tokens = 1e12, .tokens_per_second = 1e6, .gpus = 8}, EfficiencyCase::expected);
  EXPECT_FALSE(cost.dollars.has_value());
  EXPECT_FALSE(cost.kilowatt_hours.has_value());
}

TEST(Cost, PowerIsTheNodesWhereItIsKnown) {
  const Machines machines;
  EXPECT_DOUBLE_EQ(watts_of_gpu(machines.find("H100-80GB")).value, 10200.0 / 8);
  EXPECT_EQ(watts_of_gpu(machines.find("RTX-4090-24GB")).value, 450);
  EXPECT_EQ(watts_of_gpu(machines.find("TPUv5e-16GB")).value, 0);
}

}  // namespace
}  // namespace ringworld
