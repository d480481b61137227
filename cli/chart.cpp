#include "cli/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

namespace ringworld {
namespace {

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

constexpr std::string_view ink = "#1a1a1a";
constexpr std::string_view faint_ink = "#5f6368";
// Hues that colour-blind people can tell apart, as far as there are any (after Okabe and Ito); the
// second time round lines are dotted.
constexpr std::string_view colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                        "#b8860b", "#7b3fa0", "#56b4e9", "#8c564b"};

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// "8 B", "64 KiB"; powers of two have no fraction.
std::string size_label(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

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
  explicit Drawing(const Chart& chart) : chart_(chart) {
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
    head();
    y_axis();
    x_axis();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      line(i);
    }
    legend();
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  static bool drawable(double bytes, double rate) {
    return bytes > 0 && rate > 0 && std::isfinite(bytes) && std::isfinite(rate);
  }

  double x_of(double log2_bytes) const { return left + x_.part(log2_bytes) * plot_width; }
  double y_of(double log10_rate) const { return top + (1 - y_.part(log10_rate)) * plot_height; }

  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    out_ += fmt::format(format, std::forward<Values>(values)...);
  }

  void words(double x, double y, std::string_view anchor, double size, std::string_view colour,
             std::string_view content, std::string_view more = "") {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\"{}>{}"
        "</text>\n",
        x, y, anchor, size, colour, more, escaped(content));
  }

  void grid_line(double x1, double y1, double x2, double y2, std::string_view colour) {
    add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1,
        x2, y2, colour);
  }

  void head() {
    add("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"Helvetica, Arial, sans-serif\">\n"
        "<title>{2}</title>\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
        width, height, escaped(chart_.title));
    words(left, 32, "start", 19, ink, chart_.title, " font-weight=\"bold\"");
    words(left, 54, "start", 12.5, faint_ink, chart_.subtitle);
  }

  void y_axis() {
    for (int decade = static_cast<int>(y_.low); decade <= static_cast<int>(y_.high); ++decade) {
      const double y = y_of(decade);
      grid_line(left, y, left + plot_width, y, "#d0d4d9");
      words(left - 10, y + 4, "end", 12, faint_ink, rate_label(std::pow(10, decade)));
      for (int digit = 2; digit <= 9 && decade < static_cast<int>(y_.high); ++digit) {
        const double between = y_of(decade + std::log10(digit));
        grid_line(left, between, left + plot_width, between, "#eff1f3");
      }
    }
    words(14, top - 14, "start", 12, ink, chart_.y_title);
  }

  void x_axis() {
    const double y = top + plot_height;
    // Powers of two, so many apart that the labels have room.
    const int first = static_cast<int>(std::ceil(x_.low));
    const int last = static_cast<int>(std::floor(x_.high));
    const int step = std::max(1, (last - first + 10) / 11);
    for (int power = first; power <= last; power += step) {
      const double x = x_of(power);
      grid_line(x, top, x, y + 5, "#e3e6e9");
      words(x, y + 21, "middle", 12, faint_ink, size_label(std::exp2(power)));
    }
    grid_line(left, y, left + plot_width, y, faint_ink);
    words(left + plot_width / 2, y + 46, "middle", 13, ink, "size of the buffer");
  }

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
    add("<polyline class=\"series\" fill=\"none\" stroke-linejoin=\"round\" {} points=\"{}\"/>\n",
        stroke(number), path);
    out_ += points;
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
      add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x, y, x + 28, y,
          stroke(i));
      words(x + 36, y + 4, "start", 13, ink, chart_.series[i].name);
      y += legend_line;
    }
  }

  const Chart& chart_;
  Axis x_;
  Axis y_;
  std::string out_;
};

}  // namespace

std::string to_svg(const Chart& chart) {
  return Drawing(chart).text();
}

}  // namespace ringworld
