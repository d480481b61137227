// The chart of memory over numbers of GPUs.
#include "cli/plan_chart.h"

#include <gtest/gtest.h>

#include "tests/support/xml.h"

namespace ringworld {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

StackedBars two_bars() {
  return {.title = "a <model> & more",
          .subtitle = "zero3",
          .x_title = "GPUs",
          .parts = {"weights", "moments", "nothing"},
          .bars = {{"1", {Bytes(2 * gib), Bytes(8 * gib), Bytes(0)}},
                   {"2", {Bytes(gib), Bytes(4 * gib), Bytes(0)}}},
          .budget = Bytes(6 * gib),
          .budget_name = "H100"};
}

TEST(PlanChart, IsWellFormedWithABarForEachPartThatIsThere) {
  const std::string svg = to_svg(two_bars());
  EXPECT_EQ(malformed(svg), "") << svg;
  EXPECT_EQ(occurrences(svg, "<title>weights: "), 2u);
  EXPECT_EQ(occurrences(svg, "<title>moments: "), 2u);
  EXPECT_EQ(occurrences(svg, "nothing"), 0u);
  EXPECT_EQ(occurrences(svg, "stroke-dasharray"), 1u);
  EXPECT_NE(svg.find(">H100<"), std::string::npos);
}

TEST(PlanChart, HasNoBudgetWhereThereIsNone) {
  StackedBars chart = two_bars();
  chart.budget = Bytes(0);
  EXPECT_EQ(occurrences(to_svg(chart), "stroke-dasharray"), 0u);
}

TEST(PlanChart, OfNothingIsWellFormed) {
  EXPECT_EQ(malformed(to_svg({.title = "none", .subtitle = "", .x_title = ""})), "");
}

}  // namespace
}  // namespace ringworld
