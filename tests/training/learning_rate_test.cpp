#include "training/learning_rate.h"

#include <cmath>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

constexpr LearningRateOptions cosine{.peak = 0.8,
                                     .warmup_steps = 4,
                                     .steps = 12,
                                     .schedule = LearningRateSchedule::cosine,
                                     .minimum_fraction = 0.25};

TEST(LearningRate, WarmsUpLinearlyAndReachesThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 1), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 2), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 3), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 4), 0.8);
}

TEST(LearningRate, FallsAlongACosineToTheMinimum) {
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 8), 0.2 + 0.6 / 2);  // halfway
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 6), 0.2 + 0.6 * (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 10), 0.2 + 0.6 * (1 - std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 12), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 1000), 0.2);
  for (int step = 4; step < 12; ++step) {
    EXPECT_GT(learning_rate(cosine, step), learning_rate(cosine, step + 1));
  }
}

TEST(LearningRate, ConstantStaysAtThePeakAfterWarmUp) {
  LearningRateOptions constant = cosine;
  constant.schedule = LearningRateSchedule::constant;
  EXPECT_DOUBLE_EQ(learning_rate(constant, 1), 0.4);
  for (const int step : {4, 8, 12, 1000})
    EXPECT_EQ(learning_rate(constant, step), 0.8);
}

TEST(LearningRate, WithoutWarmUpBeginsAtThePeak) {
  LearningRateOptions options = cosine;
  options.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(options, 0), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(options, 6), 0.5);
}

TEST(LearningRate, AWarmUpLongerThanTheRunNeverFalls) {
  LearningRateOptions options = cosine;
  options.warmup_steps = 16;
  EXPECT_DOUBLE_EQ(learning_rate(options, 11), 0.8 * 12 / 16);
}

}  // namespace
}  // namespace ringworld
