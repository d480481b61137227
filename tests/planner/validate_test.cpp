// What the planner must keep to, against what was published.
#include "planner/validate.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "planner/cost.h"

namespace ringworld {
namespace {

const Validation& validation() {
  static const Validation result = validate(Machines());
  return result;
}

const ValidationTable& table(const std::string& name) {
  for (const ValidationTable& one : validation().tables) {
    if (one.name == name) {
      return one;
    }
  }
  throw std::out_of_range(name);
}

TEST(Validation, ExactTablesAreExact) {
  int exact = 0;
  for (const ValidationTable& one : validation().tables) {
    if (one.kind != ValidationKind::exact) {
      continue;
    }
    ++exact;
    for (const ValidationRow& row : one.rows) {
      EXPECT_TRUE(row.within_tolerance())
          << one.name << ", " << row.label << ": " << row.published << ", ours " << row.ours;
    }
  }
  EXPECT_EQ(exact, 6);
  EXPECT_EQ(table("ZeRO, table 1").rows.size(), 54u);
}

TEST(Validation, ThroughputIsWithinItsLimits) {
  EXPECT_EQ(validation().limited_rows, 28u);
  EXPECT_LT(validation().mean_error, 0.08);
  EXPECT_LT(validation().largest_error, 0.20);
  EXPECT_TRUE(validation().passes());
}

// A row that was not seen is predicted as well.
TEST(Validation, ThroughputIsWithinItsLimitsWithoutTheRow) {
  EXPECT_LT(validation().mean_left_out_error, 0.08);
  EXPECT_LT(validation().largest_left_out_error, 0.20);
  EXPECT_GE(largest_validated_error, validation().largest_left_out_error);
}

// The table's constants are those that fit, and no row decides them.
TEST(Validation, TheConstantsAreTheFittedOnes) {
  ASSERT_EQ(validation().constants.size(), 3u);
  for (const FittedConstant& constant : validation().constants) {
    EXPECT_NEAR(constant.built_in, constant.fitted, 0.002) << constant.machine;
    EXPECT_LT(constant.highest - constant.lowest, 0.1) << constant.machine;
  }
}

// Published GPU-hours hold restarts and evaluation, ours are of steps alone.
TEST(Validation, TwoTrainingsTakeTheHoursThatWerePublished) {
  for (const ValidationRow& row : table("GPU-hours").rows) {
    EXPECT_LT(std::abs(row.ours / effective_training_time / row.published - 1), 0.2) << row.label;
  }
}

TEST(Validation, NetworkAndLayersAreNearWithoutAFit) {
  EXPECT_LT(table("All-reduce bus bandwidth").largest_error(), 0.1);
  EXPECT_LT(table("One layer of 22B").largest_error(), 0.12);
}

// A planted fault: a device that is a fifth slower does not pass.
TEST(Validation, AWrongConstantIsFound) {
  Machines machines;
  machines.add(R"({"machines": [{"name": "A100-80GB", "matmul_share": 0.6, "source": "wrong"}]})",
               "planted");
  EXPECT_FALSE(validate(machines).passes());
}

// docs/validation.md is what plan validate --markdown writes: after a change, write it anew.
TEST(Validation, TheDocumentIsUpToDate) {
  std::ostringstream kept;
  kept << std::ifstream(RINGWORLD_VALIDATION_DOCUMENT).rdbuf();
  EXPECT_EQ(kept.str(), to_markdown(validation()));
}

TEST(Validation, TheTextHasEveryRow) {
  const std::string text = to_markdown(validation());
  for (const ValidationTable& one : validation().tables) {
    EXPECT_NE(text.find("## " + one.name), std::string::npos);
    for (const ValidationRow& row : one.rows) {
      EXPECT_NE(text.find("| " + row.label + " |"), std::string::npos) << row.label;
    }
  }
}

}  // namespace
}  // namespace ringworld
