#include "cli/memory_chart.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "cli/output_file.h"
#include "cli/svg.h"

namespace ringworld {
namespace {

using svg::faint_ink;
using svg::ink;

// In pixels.
constexpr double width = 1180;
constexpr double height = 660;
constexpr double left = 92;
constexpr double right = 196;  // the legend stands here
constexpr double top = 200;    // labels of marks stand here
constexpr double bottom = 66;
constexpr double plot_width = width - left - right;
constexpr double plot_height = height - top - bottom;
constexpr double legend_line = 22;
constexpr double label_room = 12;         // between the labels of two marks
constexpr std::size_t label_length = 26;  // characters that fit above the plot

// A budget that is further above the peak than this is named, not drawn.
constexpr double budget_in_sight = 3;

double value(Bytes bytes) {
  return static_cast<double>(bytes.value);
}

// A round number of at least `least`: 1, 2 or 5 times a power of ten.
double round_decimal(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= least) {
      return digit * power;
    }
  }
  return 10 * power;
}

class Drawing {
 public:
  Drawing(const MemoryTimeline& timeline, std::string_view title, std::string_view subtitle)
      : timeline_(timeline), peak_(timeline.peak()), page_(width, height, left, title, subtitle) {
    const double peak = std::max(1.0, value(peak_.total));
    const double budget = value(timeline.budget());
    budget_drawn_ = budget > 0 && budget <= budget_in_sight * peak;
    highest_ = 1.05 * std::max(peak, budget_drawn_ ? budget : 0);
    if (!timeline.events().empty()) {
      seconds_ = std::max(timeline.events().back().seconds, 1e-9);
    }
    std::array<bool, category_count> used{};
    for (const MemoryEvent& event : timeline.events()) {
      for (std::size_t c = 0; c < category_count; ++c) {
        used[c] = used[c] || event.held[c].value > 0;
      }
    }
    for (std::size_t c = 0; c < category_count; ++c) {
      if (used[c]) {
        categories_.push_back(c);
      }
    }
  }

  std::string text() {
    y_axis();
    areas();
    marks();
    x_axis();
    budget();
    peak();
    legend();
    return page_.finish();
  }

 private:
  double x_of(double seconds) const { return left + seconds / seconds_ * plot_width; }
  double y_of(double bytes) const { return top + (1 - bytes / highest_) * plot_height; }

  void y_axis() {
    // A power of two that gives four to eight lines.
    const double step = std::exp2(std::ceil(std::log2(highest_ / 8)));
    for (double bytes = 0; bytes <= highest_; bytes += step) {
      page_.line(left, y_of(bytes), left + plot_width, y_of(bytes), "#e3e6e9");
      page_.words(left - 10, y_of(bytes) + 4, "end", 12, faint_ink, svg::size_label(bytes));
    }
  }

  void x_axis() {
    const double y = top + plot_height;
    page_.line(left, y, left + plot_width, y, faint_ink);
    const double step = round_decimal(seconds_ / 10);
    for (int i = 0; i * step <= seconds_; ++i) {
      const double x = x_of(i * step);
      page_.line(x, y, x, y + 5, faint_ink);
      page_.words(x, y + 21, "middle", 12, faint_ink, fmt::format("{:.6g}", i * step * 1e3));
    }
    page_.words(left + plot_width / 2, y + 46, "middle", 13, ink,
                "milliseconds since the start of the step");
  }

  // What is shown from this pixel on.
  struct Point {
    double x;
    const MemoryEvent* event;
  };

  // Each pixel with events shows the highest of them, and what follows it the last of them.
  std::vector<Point> points() const {
    const std::vector<MemoryEvent>& events = timeline_.events();
    std::vector<Point> result;
    for (std::size_t i = 0; i < events.size();) {
      const double pixel = std::floor(x_of(events[i].seconds));
      const MemoryEvent* highest = &events[i];
      for (; i < events.size() && std::floor(x_of(events[i].seconds)) == pixel; ++i) {
        highest = events[i].total > highest->total ? &events[i] : highest;
      }
      result.push_back({pixel, highest});
      if (highest != &events[i - 1]) {
        result.push_back({pixel + 1, &events[i - 1]});
      }
    }
    return result;
  }

  // The lowest category lies on the axis, each other one on the one before.
  void areas() {
    const std::vector<Point> shown = points();
    if (shown.empty()) {
      return;
    }
    std::vector<double> floor_of(shown.size(), 0.0);
    for (const std::size_t c : categories_) {
      std::vector<double> ceiling(shown.size());
      for (std::size_t i = 0; i < shown.size(); ++i) {
        ceiling[i] = floor_of[i] + value(shown[i].event->held[c]);
      }
      std::string path = fmt::format("M{:.0f},{:.1f}", shown.front().x, y_of(ceiling.front()));
      for (std::size_t i = 1; i < shown.size(); ++i) {
        path += fmt::format("H{:.0f}V{:.1f}", shown[i].x, y_of(ceiling[i]));
      }
      path += fmt::format("H{:.0f}V{:.1f}", left + plot_width, y_of(floor_of.back()));
      for (std::size_t i = shown.size() - 1; i > 0; --i) {
        path += fmt::format("H{:.0f}V{:.1f}", shown[i].x, y_of(floor_of[i - 1]));
      }
      page_.add("<path class=\"area\" fill=\"{}\" d=\"{}H{:.0f}Z\"><title>{}</title></path>\n",
                svg::colours[c], path, shown.front().x, name_of(static_cast<Category>(c)));
      floor_of = std::move(ceiling);
    }
  }

  void marks() {
    double last_label = -label_room;
    for (std::size_t i = 0; i < timeline_.marks().size(); ++i) {
      const MemoryMark& mark = timeline_.marks()[i];
      const double x = std::min(x_of(mark.seconds), left + plot_width);
      const double end = i + 1 < timeline_.marks().size()
                             ? std::min(x_of(timeline_.marks()[i + 1].seconds), left + plot_width)
                             : left + plot_width;
      page_.line(x, top, x, top + plot_height, ink,
                 " class=\"mark\" stroke-opacity=\"0.25\" stroke-dasharray=\"2 3\"");
      page_.add(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"8\" fill=\"{}\" "
          "fill-opacity=\"{}\"><title>{}</title></rect>\n",
          x, top - 8, end - x, ink, i % 2 == 0 ? 0.25 : 0.1, svg::escaped(mark.label));
      if (x - last_label >= label_room) {
        page_.words(x + 4, top - 12, "start", 10.5, ink, mark.label.substr(0, label_length),
                    fmt::format(" transform=\"rotate(-60 {:.1f} {:.1f})\"", x + 4, top - 12));
        last_label = x;
      }
    }
  }

  void budget() {
    if (budget_drawn_) {
      const double y = y_of(value(timeline_.budget()));
      page_.line(left, y, left + plot_width, y, "#c00000",
                 " class=\"budget\" stroke-width=\"2\" stroke-dasharray=\"7 4\"");
    }
  }

  void peak() {
    if (timeline_.events().empty()) {
      return;
    }
    const double x = x_of(peak_.seconds);
    const double y = y_of(value(peak_.total));
    const bool on_the_right = x > left + plot_width / 2;
    page_.add(
        "<circle class=\"peak\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"none\" stroke=\"{}\" "
        "stroke-width=\"2\"/>\n",
        x, y, ink);
    page_.words(x + (on_the_right ? -9 : 9), y - 6, on_the_right ? "end" : "start", 12.5, ink,
                fmt::format("peak {}", to_string(peak_.total)), " font-weight=\"bold\"");
  }

  // From top to bottom as the areas lie.
  void legend() {
    const double x = left + plot_width + 20;
    double y = top + 8;
    for (auto c = categories_.rbegin(); c != categories_.rend(); ++c) {
      page_.add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"14\" fill=\"{}\"/>\n", x,
                y - 10, svg::colours[*c]);
      page_.words(x + 22, y + 2, "start", 13, ink, name_of(static_cast<Category>(*c)));
      y += legend_line;
    }
    if (timeline_.budget().value > 0) {
      if (budget_drawn_) {
        page_.line(x, y - 3, x + 14, y - 3, "#c00000",
                   " stroke-width=\"2\" stroke-dasharray=\"7 4\"");
      }
      page_.words(x + 22, y + 2, "start", 13, ink,
                  fmt::format("budget {}", to_string(timeline_.budget())));
    }
  }

  const MemoryTimeline& timeline_;
  const MemoryEvent peak_;
  svg::Page page_;
  bool budget_drawn_ = false;
  double highest_ = 1;                   // bytes, at the top
  double seconds_ = 1;                   // at the right
  std::vector<std::size_t> categories_;  // that held anything, from the bottom
};

}  // namespace

std::string to_svg(const MemoryTimeline& timeline, std::string_view title,
                   std::string_view subtitle) {
  return Drawing(timeline, title, subtitle).text();
}

TimelineFiles timeline_files(std::string_view path) {
  for (const std::string_view suffix : {".json", ".svg"}) {
    if (path.ends_with(suffix)) {
      path.remove_suffix(suffix.size());
      break;
    }
  }
  return {fmt::format("{}.json", path), fmt::format("{}.svg", path)};
}

std::string write_timeline(std::string_view option, std::string_view path,
                           const MemoryTimeline& timeline, const nlohmann::ordered_json& conditions,
                           std::string_view title, std::string_view subtitle) {
  const TimelineFiles files = timeline_files(path);
  write_file(option, files.json, timeline.json_text(conditions));
  write_file(option, files.svg, to_svg(timeline, title, subtitle));
  return fmt::format("memory over time: {} and {}", files.json, files.svg);
}

}  // namespace ringworld
