// Stacked bars as an SVG file: what a GPU holds, part by part, over numbers of GPUs.
#pragma once

#include <string>
#include <vector>

#include "runtime/bytes.h"

namespace ringworld {

struct StackedBar {
  std::string label;
  std::vector<Bytes> parts = {};  // as StackedBars::parts
};

struct StackedBars {
  std::string title;
  std::string subtitle;
  std::string x_title;
  std::vector<std::string> parts = {};  // what no bar has is left out
  std::vector<StackedBar> bars = {};
  Bytes budget{0};  // a line across; 0: none
  std::string budget_name = {};
};

std::string to_svg(const StackedBars& chart);

}  // namespace ringworld
