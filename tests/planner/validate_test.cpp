// What the planner must keep to, against what was published.
#include "planner/validate.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "planner/cost.h"
#include "planner/transformer.h"

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
  EXPECT_EQ(exact, 11);
  EXPECT_EQ(table("ZeRO, table 1").rows.size(), 54u);
  EXPECT_EQ(table("DeepSpeed's estimators").rows.size(), 32u);
  EXPECT_EQ(table("DeepSpeed's T5-large").rows.size(), 3u);
  EXPECT_EQ(table("ZeRO-Offload, strategies").rows.size(), 4u);
  EXPECT_EQ(table("ZeRO-Infinity, formulas").rows.size(), 9u);
  EXPECT_EQ(table("GPT-2 124M, sizing").rows.size(), 17u);
}

// 16 bytes for each parameter, but for the one that is misprinted.
TEST(Validation, StatesThatZeroOffloadMoves) {
  const std::vector<ValidationRow>& rows = table("ZeRO-Offload, states").rows;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_DOUBLE_EQ(rows[0].ours, rows[0].published);
  EXPECT_DOUBLE_EQ(rows[1].ours, rows[1].published);
  EXPECT_DOUBLE_EQ(rows[2].ours, 275.2);
  EXPECT_EQ(rows[2].published, 284);
}

// 16 bytes more for each element of the width and token than the paper has, the scores alike.
TEST(Validation, ActivationsThatZeroInfinityRecomputes) {
  for (const ValidationRow& row : table("ZeRO-Infinity, activations").rows) {
    const double width = static_cast<double>(find_transformer(row.label).width);
    EXPECT_NEAR(row.ours - row.published, 2048 * 16 * width / 1e9, 1e-9) << row.label;
  }
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
  kept << std::ifstream(RINGWORLD_SOURCE_DIR "/docs/validation.md").rdbuf();
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
