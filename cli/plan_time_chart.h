// The charts of plan step and plan cost, as SVG files.
#pragma once

#include <string>
#include <vector>

namespace ringworld {

// Where a step's time goes: a bar for each part, what is hidden behind it paler.
struct TimeBar {
  std::string name;
  double exposed = 0;  // seconds
  double hidden = 0;
};
struct TimeBars {
  std::string title;
  std::string subtitle;
  std::vector<TimeBar> bars;
};
std::string to_svg(const TimeBars& chart);

// Cost over days, both from 0: a point for each number of GPUs.
struct CostPoint {
  double days = 0;
  double cost = 0;
  std::string label;  // "1024 GPUs"
  bool asked = false;
};
struct CostCurve {
  std::string title;
  std::string subtitle;
  std::string unit;               // "dollars", "GPU-hours"
  std::vector<CostPoint> points;  // by days
};
std::string to_svg(const CostCurve& chart);

}  // namespace ringworld
