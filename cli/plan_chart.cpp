#include "cli/plan_chart.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/svg.h"

namespace ringworld {
namespace {

constexpr double width = 900;
constexpr double height = 520;
constexpr double left = 80;
constexpr double right = 690;  // of the plot; the legend is behind it
constexpr double top = 80;
constexpr double bottom = 455;

// More parts than there are colours repeat them paler.
constexpr std::string_view pale = " fill-opacity=\"0.45\"";

// A round step that makes four to eight of the range.
double step_of(double range) {
  const double unit = std::pow(2.0, std::floor(std::log2(range)));
  return range / unit < 1.5 ? unit / 4 : unit / 2;
}

double value_of(Bytes bytes) {
  return static_cast<double>(bytes.value);
}

double total_of(const StackedBar& bar) {
  return value_of(std::accumulate(bar.parts.begin(), bar.parts.end(), Bytes(0)));
}

class Drawing {
 public:
  explicit Drawing(const StackedBars& chart)
      : chart_(chart), page_(width, height, left, chart.title, chart.subtitle) {
    double highest = value_of(chart.budget) * 1.02;
    for (const StackedBar& bar : chart.bars) {
      highest = std::max(highest, total_of(bar));
    }
    // Where the first bars are many times the budget, the interesting ones would be slivers.
    if (chart.budget.value > 0) {
      highest = std::min(highest, 4 * value_of(chart.budget));
    }
    step_ = step_of(std::max(highest, 1.0));
    most_ = std::ceil(std::max(highest, 1.0) / step_) * step_;
    for (std::size_t part = 0; part < chart.parts.size(); ++part) {
      if (std::ranges::any_of(chart.bars,
                              [&](const StackedBar& bar) { return bar.parts[part].value > 0; })) {
        shown_.push_back(part);
      }
    }
  }

  std::string draw() {
    draw_scale();
    const double pitch =
        (right - left) / static_cast<double>(std::max<std::size_t>(1, chart_.bars.size()));
    for (std::size_t i = 0; i < chart_.bars.size(); ++i) {
      draw_bar(chart_.bars[i], left + (static_cast<double>(i) + 0.15) * pitch, 0.7 * pitch);
    }
    draw_budget();
    draw_legend();
    return page_.finish();
  }

 private:
  double y_of(double bytes) const { return bottom - (bottom - top) * std::min(1.0, bytes / most_); }

  void draw_scale() {
    for (double value = 0; value <= most_ * 1.0001; value += step_) {
      page_.line(left, y_of(value), right, y_of(value), "#e3e5e8");
      page_.words(left - 8, y_of(value) + 4, "end", 11.5, svg::faint_ink, svg::size_label(value));
    }
    page_.words((left + right) / 2, bottom + 44, "middle", 12.5, svg::ink, chart_.x_title);
  }

  void draw_bar(const StackedBar& bar, double x, double wide) {
    double below = 0;
    for (std::size_t i = 0; i < shown_.size(); ++i) {
      const double bytes = value_of(bar.parts[shown_[i]]);
      const double y = y_of(below + bytes);
      page_.add(
          "<rect x=\"{:.1f}\" y=\"{:.2f}\" width=\"{:.1f}\" height=\"{:.2f}\" fill=\"{}\"{}>"
          "<title>{}: {}</title></rect>\n",
          x, y, wide, y_of(below) - y, colour(i), shade(i), svg::escaped(chart_.parts[shown_[i]]),
          to_string(bar.parts[shown_[i]]));
      below += bytes;
    }
    page_.words(x + wide / 2, bottom + 20, "middle", 12, svg::ink, bar.label);
    page_.words(
        x + wide / 2, y_of(below) - 5, "middle", 10, svg::faint_ink,
        below > most_ ? fmt::format("{} ...", svg::size_label(below)) : svg::size_label(below));
  }

  void draw_budget() {
    if (chart_.budget.value > 0) {
      const double y = y_of(value_of(chart_.budget));
      page_.line(left, y, right, y, svg::ink, " stroke-width=\"1.5\" stroke-dasharray=\"6 4\"");
      page_.words(right - 4, y - 6, "end", 11.5, svg::ink, chart_.budget_name);
    }
  }

  void draw_legend() {
    double y = bottom - 6;
    for (std::size_t i = 0; i < shown_.size(); ++i, y -= 20) {
      page_.add("<rect x=\"{}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"{}/>\n",
                right + 26, y - 10, colour(i), shade(i));
      page_.words(right + 44, y, "start", 12, svg::ink, chart_.parts[shown_[i]]);
    }
  }

  static std::string_view colour(std::size_t i) {
    return svg::colours[i % std::size(svg::colours)];
  }
  static std::string_view shade(std::size_t i) {
    return i < std::size(svg::colours) ? std::string_view() : pale;
  }

  const StackedBars& chart_;
  svg::Page page_;
  double step_ = 1;
  double most_ = 1;
  std::vector<std::size_t> shown_;  // of the parts
};

}  // namespace

std::string to_svg(const StackedBars& chart) {
  return Drawing(chart).draw();
}

}  // namespace ringworld
