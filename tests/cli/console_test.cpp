#include "cli/console.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::size_t count_of(const std::string& text, char c) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), c));
}

std::size_t columns_of(const std::string& text) {
  std::size_t columns = 0;
  for (const char c : text)
    columns += (c & 0xC0) != 0x80;
  return columns;
}

// What each drawing of the bar put on the screen.
std::vector<std::string> drawings(const std::string& output) {
  std::vector<std::string> parts;
  std::istringstream stream(output);
  for (std::string part; std::getline(stream, part, '\r');) {
    if (!part.empty())
      parts.push_back(part);
  }
  return parts;
}

StepMetrics at(std::int64_t step, double seconds) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 5.0 / static_cast<double>(step);
  metrics.step_seconds = seconds;
  metrics.tokens_per_second = 12345;
  return metrics;
}

std::string run(ProgressStyle style, std::int64_t steps, double seconds, Terminal terminal = {},
                std::int64_t measure_every = 0) {
  std::ostringstream out;
  Progress progress(out, style, steps, terminal);
  for (std::int64_t step = 1; step <= steps; ++step) {
    StepMetrics metrics = at(step, seconds);
    if (measure_every > 0 && step % measure_every == 0)
      metrics.validation_loss = 2.25;
    progress.step(metrics);
  }
  progress.finish();
  return out.str();
}

TEST(Console, CountsHaveThreeDigits) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(7), "7");
  EXPECT_EQ(human_count(0.5), "0.50");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(999.9), "1.00k");
  EXPECT_EQ(human_count(12345), "12.3k");
  EXPECT_EQ(human_count(99'960), "100k");
  EXPECT_EQ(human_count(124'439'808), "124M");
  EXPECT_EQ(human_count(1'557'611'200), "1.56G");
  EXPECT_EQ(human_count(nan), "?");
}

TEST(Console, DurationsHaveTwoUnits) {
  EXPECT_EQ(human_duration(0.42), "0.42s");
  EXPECT_EQ(human_duration(8.52), "8.5s");
  EXPECT_EQ(human_duration(59.4), "59s");
  EXPECT_EQ(human_duration(59.6), "1m 00s");
  EXPECT_EQ(human_duration(80), "1m 20s");
  EXPECT_EQ(human_duration(7500), "2h 05m");
  EXPECT_EQ(human_duration(3 * 86400 + 4 * 3600), "3d 04h");
  EXPECT_EQ(human_duration(-1), "?");
  EXPECT_EQ(human_duration(nan), "?");
}

TEST(Console, TableAlignsItsColumns) {
  Table table({{"strategy"}, {"error", Align::right}, {"tensor"}});
  table.add_row({"ddp", "1.2e-15", "wte"});
  table.add_row({"single µ", "0", ""});
  EXPECT_EQ(table.text(),
            "strategy    error  tensor\n"
            "--------  -------  ------\n"
            "ddp       1.2e-15  wte\n"
            "single µ        0\n");
  EXPECT_THROW(table.add_row({"too", "few"}), std::invalid_argument);
}

TEST(Console, SparklineShowsTheCourse) {
  EXPECT_EQ(sparkline({0, 7, 3}, 8), "▁█▄");
  EXPECT_EQ(sparkline({0, 0, 7, 7}, 2), "▁█");
  EXPECT_EQ(sparkline({2, 2}, 8), "▁▁");
  EXPECT_EQ(sparkline({nan, 1, 8}, 8), "▁█");
  EXPECT_EQ(sparkline({nan}, 8), "");
  EXPECT_EQ(sparkline({}, 8), "");
}

TEST(Progress, LinesAreFewAndHoldWhatMatters) {
  const std::string output = run(ProgressStyle::lines, 1000, 0.01);
  EXPECT_EQ(count_of(output, '\n'), 21u);  // the first, and every twentieth part
  EXPECT_EQ(output.substr(0, output.find('\n')).find("step 1/1000  loss 5.0000"), 0u);
  EXPECT_NE(output.find("step 500/1000  loss 0.0100"), std::string::npos);
  EXPECT_NE(output.find("12.3k tokens/s"), std::string::npos);
  EXPECT_NE(output.find("ETA 5.0s"), std::string::npos) << output;
  EXPECT_NE(output.find("step 1000/1000"), std::string::npos);
  EXPECT_NE(output.find("in 10s"), std::string::npos) << output;
  EXPECT_EQ(count_of(output, '\r'), 0u);
}

TEST(Progress, LongStepsAndMeasurementsGetALineOfTheirOwn) {
  EXPECT_EQ(count_of(run(ProgressStyle::lines, 100, 31), '\n'), 100u);
  const std::string measured = run(ProgressStyle::lines, 1000, 0.01, {}, 333);
  EXPECT_EQ(count_of(measured, '\n'), 24u);
  EXPECT_NE(measured.find("step 666/1000  loss 0.0075  validation 2.2500"), std::string::npos);
}

TEST(Progress, TheBarIsDrawnOverItselfTenTimesASecondAtMost) {
  const std::string output = run(ProgressStyle::bar, 1000, 0.01);  // ten seconds
  EXPECT_EQ(count_of(output, '\n'), 1u);
  EXPECT_TRUE(output.ends_with('\n'));
  EXPECT_GE(count_of(output, '\r'), 80u);
  EXPECT_LE(count_of(output, '\r'), 102u);
  const auto bars = drawings(output);
  EXPECT_NE(bars.front().find("step 1/1000 ............"), std::string::npos) << bars.front();
  EXPECT_NE(bars.back().find("step 1000/1000 ############"), std::string::npos) << bars.back();
  EXPECT_NE(bars.back().find("100%"), std::string::npos);
}

TEST(Progress, TheBarFitsTheTerminal) {
  for (const bool unicode : {false, true}) {
    for (const int columns : {20, 40, 60, 80, 100}) {
      const Terminal terminal{true, columns, unicode};
      std::ostringstream out;
      Progress progress(out, ProgressStyle::bar, 100'000'000, terminal);
      for (std::int64_t step = 1; step <= 100'000'000; step *= 10) {
        StepMetrics metrics = at(step, 1000);
        metrics.validation_loss = 1234.5;
        metrics.loss = 12345.678;
        progress.step(metrics);
      }
      const auto bars = drawings(out.str());
      ASSERT_EQ(bars.size(), 9u);
      for (const auto& line : bars) {
        EXPECT_LT(columns_of(line), static_cast<std::size_t>(columns)) << line;
      }
    }
  }
}

TEST(Progress, AShorterBarWipesOutALongerOne) {
  std::ostringstream out;
  Progress progress(out, ProgressStyle::bar, 1000, {true, 100, false});
  StepMetrics longer = at(1, 1);
  longer.loss = 1e12;
  progress.step(longer);
  progress.step(at(2, 1));
  const auto bars = drawings(out.str());
  ASSERT_EQ(bars.size(), 2u);
  EXPECT_GE(columns_of(bars[1]), columns_of(bars[0]));
}

TEST(Progress, AutoDrawsABarOnlyWhereSomeoneWatches) {
  EXPECT_GT(count_of(run(ProgressStyle::automatic, 10, 1, {true, 80, true}), '\r'), 0u);
  EXPECT_EQ(count_of(run(ProgressStyle::automatic, 10, 1, {false, 80, true}), '\r'), 0u);
  EXPECT_EQ(run(ProgressStyle::none, 10, 1, {true, 80, true}), "");
}

}  // namespace
}  // namespace ringworld
