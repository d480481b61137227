#include "cli/plan_time_chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/svg.h"

namespace ringworld {
namespace {

constexpr double width = 900;
constexpr double left = 120;
constexpr double right = 810;
constexpr double top = 84;

// A round step, 1, 2 or 5 times a power of ten, that makes three to eight of the range.
double step_of(double range) {
  const double unit = std::pow(10.0, std::floor(std::log10(range)));
  const double part = range / unit;
  return unit * (part < 1.5 ? 0.2 : part < 3.5 ? 0.5 : part < 7.5 ? 1 : 2);
}

std::string time_label(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

}  // namespace

std::string to_svg(const TimeBars& chart) {
  constexpr double pitch = 30;
  const double bottom = top + pitch * static_cast<double>(chart.bars.size());
  double longest = 1e-9;
  for (const TimeBar& bar : chart.bars) {
    longest = std::max(longest, bar.exposed + bar.hidden);
  }
  svg::Page page(width, bottom + 70, left, chart.title, chart.subtitle);
  const double scale = (right - left) / longest;
  const double step = step_of(longest);
  for (double value = 0; value <= longest * 1.0001; value += step) {
    const double x = left + value * scale;
    page.line(x, top - 6, x, bottom, "#e3e5e8");
    page.words(x, bottom + 18, "middle", 11.5, svg::faint_ink, time_label(value));
  }
  double y = top;
  for (const TimeBar& bar : chart.bars) {
    const auto draw = [&](double from, double seconds, std::string_view what,
                          std::string_view more) {
      page.add(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"20\" fill=\"{}\"{}>"
          "<title>{}, {}: {}</title></rect>\n",
          left + from * scale, y, seconds * scale, svg::colours[0], more, svg::escaped(bar.name),
          what, time_label(seconds));
    };
    draw(0, bar.exposed, "in the step's time", "");
    if (bar.hidden > 0) {
      draw(bar.exposed, bar.hidden, "hidden behind compute", " fill-opacity=\"0.3\"");
    }
    page.words(left - 8, y + 15, "end", 12, svg::ink, bar.name);
    page.words(left + (bar.exposed + bar.hidden) * scale + 6, y + 15, "start", 11, svg::faint_ink,
               time_label(bar.exposed));
    y += pitch;
  }
  page.words(left, bottom + 44, "start", 11.5, svg::faint_ink,
             "dark: in the step's time; pale: communication hidden behind compute");
  return page.finish();
}

std::string to_svg(const CostCurve& chart) {
  constexpr double height = 520;
  constexpr double bottom = 440;
  double most_days = 1e-9;
  double most_cost = 1e-9;
  for (const CostPoint& point : chart.points) {
    most_days = std::max(most_days, point.days);
    most_cost = std::max(most_cost, point.cost);
  }
  most_days *= 1.05;
  most_cost *= 1.1;
  const auto x_of = [&](double days) { return left + (right - left) * days / most_days; };
  const auto y_of = [&](double cost) { return bottom - (bottom - top) * cost / most_cost; };
  svg::Page page(width, height, left, chart.title, chart.subtitle);
  for (double cost = 0; cost <= most_cost; cost += step_of(most_cost)) {
    page.line(left, y_of(cost), right, y_of(cost), "#e3e5e8");
    page.words(left - 8, y_of(cost) + 4, "end", 11.5, svg::faint_ink, human_count(cost));
  }
  for (double days = 0; days <= most_days; days += step_of(most_days)) {
    page.line(x_of(days), top, x_of(days), bottom, "#eff1f3");
    page.words(x_of(days), bottom + 20, "middle", 11.5, svg::faint_ink, fmt::format("{:g}", days));
  }
  page.words((left + right) / 2, bottom + 46, "middle", 12.5, svg::ink, "days");
  page.words(14, top - 12, "start", 12.5, svg::ink, chart.unit);
  std::string line;
  for (const CostPoint& point : chart.points) {
    line += fmt::format("{:.1f},{:.1f} ", x_of(point.days), y_of(point.cost));
  }
  page.add("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", line,
           svg::colours[0]);
  for (const CostPoint& point : chart.points) {
    page.add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x_of(point.days),
             y_of(point.cost), point.asked ? 6 : 4, svg::colours[point.asked ? 1 : 0]);
    page.words(x_of(point.days), y_of(point.cost) - 10, "middle", 11, svg::ink, point.label);
  }
  return page.finish();
}

}  // namespace ringworld
