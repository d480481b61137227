// The chart of memory over time, and the files that hold it.
#include "cli/memory_chart.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/xml.h"

namespace ringworld {
namespace {

constexpr std::int64_t kib = 1024;

// Parameters all the time, activations for a while.
void record(Device& device, MemoryTimeline& timeline) {
  const auto weights = device.allocate(Bytes(64 * kib), Category::parameters);
  timeline.begin();
  timeline.mark("forward <h.0>");
  {
    const auto x = device.allocate(Bytes(32 * kib), Category::activations);
    timeline.mark("backward & more");
  }
  timeline.end();
}

TEST(MemoryChart, IsWellFormedWithAnAreaForEachCategoryThatHeldSomething) {
  const auto device = Device::create({.budget = Bytes(128 * kib)});
  MemoryTimeline timeline(*device);
  record(*device, timeline);
  const std::string svg = to_svg(timeline, "gpt2-tiny, \"fsdp\"", "rank 0 of 2; step 3");
  EXPECT_EQ(malformed(svg), "") << svg;
  EXPECT_EQ(occurrences(svg, "class=\"area\""), 2u);
  EXPECT_EQ(occurrences(svg, "class=\"budget\""), 1u);
  EXPECT_EQ(occurrences(svg, "class=\"peak\""), 1u);
  EXPECT_EQ(occurrences(svg, "class=\"mark\""), 2u);
  for (const char* fact :
       {"gpt2-tiny, &quot;fsdp&quot;", ">parameters<", ">activations<", "peak 96.00 KiB",
        "budget 128.00 KiB", "forward &lt;h.0&gt;", "backward &amp; more", "milliseconds"}) {
    EXPECT_NE(svg.find(fact), std::string::npos) << fact << "\n" << svg;
  }
  for (const char* absent : {">gradients<", ">gathered<", "nan", "inf"}) {
    EXPECT_EQ(svg.find(absent), std::string::npos) << absent;
  }
}

double number_behind(const std::string& svg, const std::string& what,
                     const std::string& attribute) {
  const std::size_t at = svg.find(attribute + "=\"", svg.find(what));
  return std::stod(svg.substr(at + attribute.size() + 2));
}

// The budget is at 128, the peak at 96, and zero where the axis is: heights are in proportion.
TEST(MemoryChart, HeightsAreInProportion) {
  const auto device = Device::create({.budget = Bytes(128 * kib)});
  MemoryTimeline timeline(*device);
  record(*device, timeline);
  const std::string svg = to_svg(timeline, "", "");
  const double budget =
      number_behind(svg.substr(svg.rfind("<line", svg.find("class=\"budget\""))), "<line", "y1");
  const double peak = number_behind(svg, "class=\"peak\"", "cy");
  // The lowest area begins with "M x,y": the top of the parameters, 64.
  const std::size_t path = svg.find(" d=\"M") + 5;
  const double parameters = std::stod(svg.substr(svg.find(',', path) + 1));
  EXPECT_LT(budget, peak);
  EXPECT_LT(peak, parameters);
  EXPECT_NEAR((parameters - peak) / (parameters - budget), 0.5, 0.01);
  // Activations lie on the parameters, and reach the peak.
  const std::string upper = svg.substr(svg.rfind("class=\"area\""));
  EXPECT_NE(upper.find(fmt::format("V{:.1f}", peak)), std::string::npos) << upper;
}

// A peak of a moment that falls on one pixel with what follows it is seen.
TEST(MemoryChart, ShowsTheHighestOfAPixel) {
  const auto device = Device::create({});
  MemoryTimeline timeline(*device);
  timeline.begin();
  for (int i = 0; i < 3000; ++i) {
    device->allocate(Bytes(i == 1500 ? 4 * kib * kib : 512), Category::workspace);
  }
  timeline.end();
  const std::string svg = to_svg(timeline, "", "");
  EXPECT_LT(svg.size(), 100'000u);  // as many points as pixels, not as events
  const double peak = number_behind(svg, "class=\"peak\"", "cy");
  EXPECT_NE(svg.find(fmt::format("V{:.1f}", peak)), std::string::npos);
}

TEST(MemoryChart, NothingToDrawAndABudgetOutOfSight) {
  const auto device = Device::create({.budget = Bytes(1024 * kib)});
  MemoryTimeline timeline(*device);
  EXPECT_EQ(malformed(to_svg(timeline, "a", "b")), "");
  record(*device, timeline);
  const std::string svg = to_svg(timeline, "a", "b");
  EXPECT_EQ(occurrences(svg, "class=\"budget\""), 0u);
  EXPECT_NE(svg.find("budget 1.00 MiB"), std::string::npos) << svg;
}

TEST(MemoryChart, WritesBothFilesBesideEachOther) {
  for (const char* name : {"memory", "memory.json", "memory.svg"}) {
    const TimelineFiles files = timeline_files(name);
    EXPECT_EQ(files.json, "memory.json");
    EXPECT_EQ(files.svg, "memory.svg");
  }
  const TemporaryDirectory directory;
  const auto device = Device::create({});
  MemoryTimeline timeline(*device);
  record(*device, timeline);
  const std::string said = write_timeline("--memory-timeline", directory.path("m.json"), timeline,
                                          {{"ranks", 1}}, "a", "b");
  EXPECT_NE(said.find(directory.path("m.svg")), std::string::npos) << said;
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(directory.path("m.json"))).at("version"), 1);
  std::stringstream svg;
  svg << std::ifstream(directory.path("m.svg")).rdbuf();
  EXPECT_EQ(malformed(svg.str()), "");
  expect_error<DataError>(
      [&] {
        write_timeline("--memory-timeline", directory.path("none/m"), timeline, {}, "a", "b");
      },
      {"--memory-timeline", "none/m.json"});
}

}  // namespace
}  // namespace ringworld
