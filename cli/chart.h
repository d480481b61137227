// A chart of bandwidth over size as an SVG file: both axes logarithmic, a line for each series.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringworld {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points = {};  // bytes, bytes per second; both above 0
  bool reference = false;  // what the others are compared with: black and dashed
};

struct Chart {
  std::string title;
  std::string subtitle;
  std::string y_title;
  std::vector<ChartSeries> series;
};

// Points that cannot be drawn on logarithmic axes are left out.
std::string to_svg(const Chart& chart);

}  // namespace ringworld
