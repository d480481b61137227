// The loss scale's states: when it grows, when it backs off, and when it gives up.
#include "training/loss_scaler.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

// The scales after each step: '.' a good one, 'x' an overflow.
std::vector<double> scales(LossScaler& scaler, const std::string& steps) {
  std::vector<double> result;
  for (const char step : steps) {
    scaler.update(step == 'x');
    result.push_back(scaler.scale());
  }
  return result;
}

std::vector<double> scales(const LossScalerOptions& options, const std::string& steps) {
  LossScaler scaler(options);
  return scales(scaler, steps);
}

using Scales = std::vector<double>;

TEST(LossScaler, BeginsAsAsked) {
  EXPECT_EQ(LossScaler().scale(), 1);
  EXPECT_EQ(LossScaler({.mode = LossScaling::dynamic}).scale(), 65536);
  EXPECT_EQ(LossScaler({.mode = LossScaling::fixed, .initial_scale = 128}).scale(), 128);
  EXPECT_FALSE(LossScaler().skips_overflows());
  EXPECT_TRUE(LossScaler({.mode = LossScaling::fixed}).skips_overflows());
}

TEST(LossScaler, GrowsAfterAWindowOfGoodStepsInARow) {
  const LossScalerOptions options{
      .mode = LossScaling::dynamic, .initial_scale = 8, .growth_window = 3};
  EXPECT_EQ(scales(options, "......."), (Scales{8, 8, 16, 16, 16, 32, 32}));
  EXPECT_EQ(scales(options, "..x..."), (Scales{8, 8, 8, 8, 8, 16})) << "an overflow starts it anew";
}

TEST(LossScaler, BacksOffFromTheOverflowThatUsesUpTheHysteresis) {
  const LossScalerOptions options{
      .mode = LossScaling::dynamic, .initial_scale = 64, .growth_window = 4};
  EXPECT_EQ(scales(options, "xxx"), (Scales{64, 32, 16})) << "and at every one after it";
  EXPECT_EQ(scales(options, "x.x"), (Scales{64, 64, 32})) << "in a row or not";
  LossScalerOptions at_once = options;
  at_once.hysteresis = 1;
  EXPECT_EQ(scales(at_once, "xx"), (Scales{32, 16}));
}

TEST(LossScaler, GrowthRestoresTheHysteresis) {
  const LossScalerOptions options{
      .mode = LossScaling::dynamic, .initial_scale = 64, .growth_window = 2};
  EXPECT_EQ(scales(options, "xx..xx"), (Scales{64, 32, 32, 64, 64, 32}));
}

TEST(LossScaler, StaysBetweenItsMinimumAndInfinity) {
  EXPECT_EQ(scales({.mode = LossScaling::dynamic, .initial_scale = 3, .hysteresis = 1}, "xxx"),
            (Scales{1.5, 1, 1}));
  EXPECT_EQ(
      scales({.mode = LossScaling::dynamic, .initial_scale = 0x1p1023, .growth_window = 1}, ".."),
      (Scales{0x1p1023, 0x1p1023}));
}

TEST(LossScaler, AFixedScaleAndNoneStay) {
  EXPECT_EQ(scales({.mode = LossScaling::fixed, .initial_scale = 8, .growth_window = 1}, "x.x."),
            (Scales{8, 8, 8, 8}));
  EXPECT_EQ(scales({.growth_window = 1}, "x."), (Scales{1, 1}));
}

TEST(LossScaler, GivesUpAfterTooManySkipsInARow) {
  for (const LossScaling mode : {LossScaling::fixed, LossScaling::dynamic}) {
    LossScaler scaler({.mode = mode, .maximum_skips = 3});
    for (const bool overflow : {true, true, false, true, true}) {
      scaler.update(overflow);
      EXPECT_FALSE(scaler.gives_up());
    }
    scaler.update(true);
    EXPECT_EQ(scaler.consecutive_skips(), 3);
    EXPECT_TRUE(scaler.gives_up());
  }
}

// A checkpoint at any moment goes on as if it had not been.
TEST(LossScaler, ContinuesFromItsState) {
  const LossScalerOptions options{
      .mode = LossScaling::dynamic, .initial_scale = 64, .growth_window = 3};
  const std::string before = "x..x.x...x";
  const std::string after = "x..xx...";
  for (std::size_t cut = 0; cut <= before.size(); ++cut) {
    LossScaler whole(options);
    scales(whole, before.substr(0, cut));
    LossScaler restored(options);
    restored.restore(whole.state());
    EXPECT_EQ(scales(restored, after), scales(whole, after)) << cut;
    EXPECT_EQ(restored.state(), whole.state());
  }
}

TEST(LossScaler, RefusesWhatIsOutOfRange) {
  const auto refuses = [](auto set, const std::string& option) {
    LossScalerOptions options{.mode = LossScaling::dynamic};
    set(options);
    expect_error<UsageError>([&] { LossScaler scaler(options); }, {option});
    options.mode = LossScaling::none;
    EXPECT_NO_THROW(LossScaler scaler(options)) << option;
  };
  refuses([](LossScalerOptions& o) { o.initial_scale = 0.5; }, "initial scale is 0.5");
  refuses([](LossScalerOptions& o) { o.initial_scale = HUGE_VAL; }, "initial scale");
  refuses([](LossScalerOptions& o) { o.growth_factor = 0.5; }, "growth factor is 0.5");
  refuses([](LossScalerOptions& o) { o.growth_window = 0; }, "growth window is 0");
  refuses([](LossScalerOptions& o) { o.backoff_factor = 0; }, "backoff factor is 0");
  refuses([](LossScalerOptions& o) { o.backoff_factor = 1.5; }, "backoff factor is 1.5");
  refuses([](LossScalerOptions& o) { o.hysteresis = 0; }, "hysteresis is 0");
  refuses([](LossScalerOptions& o) { o.minimum_scale = 0; }, "smallest scale is 0");
  refuses([](LossScalerOptions& o) { o.maximum_skips = 0; }, "skipped in a row is 0");
}

}  // namespace
}  // namespace ringworld
