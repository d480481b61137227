#include "cli/chart.h"

#include <limits>
#include <regex>

#include <gtest/gtest.h>

#include "tests/support/xml.h"

namespace ringworld {
namespace {

Chart example() {
  return {.title = "all_reduce <sum> & more",
          .subtitle = "8 ranks on 2 CPUs; \"busy\"",
          .y_title = "bus bandwidth",
          .series = {{.name = "ring", .points = {{8, 1e5}, {4096, 2e7}, {1 << 20, 3e9}}},
                     {.name = "a<b", .points = {{8, 2e5}, {4096, 4e7}, {1 << 20, 6e9}}},
                     {.name = "mpi", .points = {{8, 1e6}, {4096, 1e8}}, .reference = true}}};
}

TEST(Chart, IsWellFormedAndHasALineForEachSeries) {
  const std::string svg = to_svg(example());
  EXPECT_EQ(malformed(svg), "") << svg;
  EXPECT_EQ(occurrences(svg, "class=\"series\""), 3u);
  EXPECT_EQ(occurrences(svg, "<circle"), 8u);
  for (const char* fact :
       {"all_reduce &lt;sum&gt; &amp; more", "&quot;busy&quot;", ">bus bandwidth<", ">ring<",
        ">a&lt;b<", ">mpi<", ">8 B<", ">100 kB/s<", ">10 GB/s<", "ring: 3 GB/s at 1 MiB"}) {
    EXPECT_NE(svg.find(fact), std::string::npos) << fact;
  }
}

TEST(Chart, TheCheckerSeesWhatIsMalformed) {
  EXPECT_NE(malformed("<?xml?><svg><a></svg>"), "");
  EXPECT_NE(malformed("<?xml?><svg>a & b</svg>"), "");
  EXPECT_NE(malformed("<?xml?><svg x=1></svg>"), "");
  EXPECT_NE(malformed("<?xml?><svg/><svg></svg><svg></svg>"), "");
  EXPECT_EQ(malformed("<?xml?><svg x=\"1\"><a/></svg>"), "");
}

// Where the points of a line are: "x,y x,y".
std::vector<std::pair<double, double>> line(const std::string& svg, std::size_t number) {
  std::size_t at = 0;
  for (std::size_t i = 0; i <= number; ++i) {
    at = svg.find("class=\"series\"", at) + 1;
  }
  at = svg.find("points=\"", at) + 8;
  const std::string text = svg.substr(at, svg.find('"', at) - at);
  std::vector<std::pair<double, double>> points;
  static const std::regex point(R"(([0-9.]+),([0-9.]+))");
  for (std::sregex_iterator it(text.begin(), text.end(), point), end; it != end; ++it) {
    points.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
  }
  return points;
}

TEST(Chart, LargerIsFurtherRightAndFasterIsHigher) {
  const std::string svg = to_svg(example());
  const auto ring = line(svg, 0);
  const auto other = line(svg, 1);
  ASSERT_EQ(ring.size(), 3u);
  EXPECT_LT(ring[0].first, ring[1].first);
  EXPECT_LT(ring[1].first, ring[2].first);
  EXPECT_GT(ring[0].second, ring[1].second);
  EXPECT_GT(ring[1].second, ring[2].second);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ring[i].first, other[i].first);
    EXPECT_GT(ring[i].second, other[i].second);
  }
  // 2^3, 2^12 and 2^20, each to a tenth of a pixel.
  EXPECT_NEAR((ring[1].first - ring[0].first) / (ring[2].first - ring[0].first), 9.0 / 17, 1e-3);
}

TEST(Chart, OneSizeOrNothingToDraw) {
  Chart chart = example();
  chart.series = {
      {.name = "ring", .points = {{1024, 1e9}}},
      {.name = "none", .points = {{0, 0}, {8, std::numeric_limits<double>::infinity()}}}};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(malformed(svg), "") << svg;
  EXPECT_EQ(occurrences(svg, "<circle"), 1u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  chart.series.clear();
  EXPECT_EQ(malformed(to_svg(chart)), "");
}

}  // namespace
}  // namespace ringworld
