#include "cli/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "cli/svg.h"

namespace ringworld {
namespace {

using svg::colours;
using svg::escaped;
using svg::faint_ink;
using svg::ink;
using svg::size_label;

// In pixels.
constexpr double width = 980;
constexpr double height = 560;
constexpr double left = 92;
constexpr double right = 212;  // the legend stands here
constexpr double top = 90;
constexpr double bottom = 66;
constexpr double plot_width = width - left - right;
constexpr double plot_height = height - top - bottom;
constexpr double legend_line = 22;

// "20 GB/s", "500 kB/s".
std::string rate_label(double rate) {
  static constexpr const char* units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  int unit = 0;
  while (rate >= 999.5 && unit < 4) {
    rate /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} {}", rate, units[unit]);
}

// What lies between two values, evenly in their logarithms to some base.
struct Axis {
  double low;  // logarithms
  double high;

  double part(double logarithm) const { return (logarithm - low) / (high - low); }
};

class Drawing {
 public:
  explicit Drawing(const Chart& chart)
      : chart_(chart), page_(width, height, left, chart.title, chart.subtitle) {
    double least_x = std::numeric_limits<double>::infinity();
    double most_x = -least_x;
    double least_y = least_x;
    double most_y = -least_x;
    for (const ChartSeries& series : chart.series) {
      for (const auto& [bytes, rate] : series.points) {
        if (drawable(bytes, rate)) {
          least_x = std::min(least_x, std::log2(bytes));
          most_x = std::max(most_x, std::log2(bytes));
          least_y = std::min(least_y, std::log10(rate));
          most_y = std::max(most_y, std::log10(rate));
        }
      }
    }
    if (least_x > most_x) {  // nothing to draw
      least_x = most_x = 10;
      least_y = most_y = 9;
    }
    // A single size stands in the middle; whole decades are shown.
    x_ = least_x == most_x ? Axis{least_x - 1, most_x + 1} : Axis{least_x, most_x};
    y_ = {std::floor(least_y), std::ceil(most_y)};
    if (y_.low == y_.high) {
      y_.high += 1;
    }
  }

  std::string text() {
    y_axis();
    x_axis();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      line(i);
    }
    legend();
    return page_.finish();
  }

 private:
  static bool drawable(double bytes, double rate) {
    return bytes > 0 && rate > 0 && std::isfinite(bytes) && std::isfinite(rate);
  }

  double x_of(double log2_bytes) const { return left + x_.part(log2_bytes) * plot_width; }
  double y_of(double log10_rate) const { return top + (1 - y_.part(log10_rate)) * plot_height; }

  void y_axis() {
    for (int decade = static_cast<int>(y_.low); decade <= static_cast<int>(y_.high); ++decade) {
      const double y = y_of(decade);
      page_.line(left, y, left + plot_width, y, "#d0d4d9");
      page_.words(left - 10, y + 4, "end", 12, faint_ink, rate_label(std::pow(10, decade)));
      for (int digit = 2; digit <= 9 && decade < static_cast<int>(y_.high); ++digit) {
        const double between = y_of(decade + std::log10(digit));
        page_.line(left, between, left + plot_width, between, "#eff1f3");
      }
    }
    page_.words(14, top - 14, "start", 12, ink, chart_.y_title);
  }

  void x_axis() {
    const double y = top + plot_height;
    // Powers of two, so many apart that the labels have room.
    const int first = static_cast<int>(std::ceil(x_.low));
    const int last = static_cast<int>(std::floor(x_.high));
    const int step = std::max(1, (last - first + 10) / 11);
    for (int power = first; power <= last; power += step) {
      const double x = x_of(power);
      page_.line(x, top, x, y + 5, "#e3e6e9");
      page_.words(x, y + 21, "middle", 12, faint_ink, size_label(std::exp2(power)));
    }
    page_.line(left, y, left + plot_width, y, faint_ink);
    page_.words(left + plot_width / 2, y + 46, "middle", 13, ink, "size of the buffer");
  }

  // The second time round the colours, lines are dotted.
  std::string stroke(std::size_t series) const {
    if (chart_.series[series].reference) {
      return fmt::format("stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"7 4\"", ink);
    }
    const std::size_t number = colour_number(series);
    return fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", colour(series),
                       number < std::size(colours) ? "" : " stroke-dasharray=\"2 3\"");
  }

  std::string_view colour(std::size_t series) const {
    return chart_.series[series].reference ? ink
                                           : colours[colour_number(series) % std::size(colours)];
  }

  // References take no colour.
  std::size_t colour_number(std::size_t series) const {
    std::size_t number = 0;
    for (std::size_t i = 0; i < series; ++i) {
      number += chart_.series[i].reference ? 0 : 1;
    }
    return number;
  }

  void line(std::size_t number) {
    const ChartSeries& series = chart_.series[number];
    std::string path;
    std::string points;
    for (const auto& [bytes, rate] : series.points) {
      if (!drawable(bytes, rate)) {
        continue;
      }
      const double x = x_of(std::log2(bytes));
      const double y = y_of(std::log10(rate));
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x, y);
      // What is under the pointer tells its numbers.
      points += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"{}\"><title>{}: {} at {}</title>"
          "</circle>\n",
          x, y, colour(number), escaped(series.name), rate_label(rate), size_label(bytes));
    }
    page_.add(
        "<polyline class=\"series\" fill=\"none\" stroke-linejoin=\"round\" {} points=\"{}\"/>\n",
        stroke(number), path);
    page_.add("{}", points);
  }

  // In the order in which the lines end.
  void legend() {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      order.push_back(i);
    }
    const auto end = [&](std::size_t i) {
      const auto& points = chart_.series[i].points;
      return points.empty() ? 0.0 : points.back().second;
    };
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return end(a) > end(b); });
    double y = top + 8;
    for (const std::size_t i : order) {
      const double x = left + plot_width + 20;
      page_.add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x, y,
                x + 28, y, stroke(i));
      page_.words(x + 36, y + 4, "start", 13, ink, chart_.series[i].name);
      y += legend_line;
    }
  }

  const Chart& chart_;
  Axis x_;
  Axis y_;
  svg::Page page_;
};

}  // namespace

std::string to_svg(const Chart& chart) {
  return Drawing(chart).text();
}

}  // namespace ringworld
