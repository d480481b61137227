#include "cli/pipeline_chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/svg.h"

namespace ringworld {
namespace {

using svg::faint_ink;
using svg::ink;

// In pixels.
constexpr double width = 1180;
constexpr double left = 84;
constexpr double right = 96;  // live micro-batches stand here
constexpr double top = 116;   // the legend stands above it
constexpr double bottom = 64;
constexpr double plot_width = width - left - right;
constexpr double row_height = 34;
constexpr double box_height = 28;
constexpr double digit_width = 7.5;
constexpr double tick_room = 60;  // between two ticks, at least

constexpr std::string_view background = "#eef0f2";

std::string_view colour_of(PipelineWork work) {
  switch (work) {
    case PipelineWork::forward:
      return svg::colours[0];
    case PipelineWork::backward:
    case PipelineWork::backward_input:
      return svg::colours[2];
    case PipelineWork::backward_weight:
      return svg::colours[1];
  }
  return ink;
}

class Drawing {
 public:
  Drawing(const PipelineSchedule& schedule, const PipelineTimeline& timeline,
          const PipelineNeeds& needs, std::string_view title, std::string_view subtitle)
      : schedule_(schedule),
        timeline_(timeline),
        needs_(needs),
        plot_height_(row_height * schedule.shape.stages),
        page_(width, top + plot_height_ + bottom, left, title, subtitle) {}

  std::string text() {
    legend();
    page_.words(left + plot_width + 12, top - 12, "start", 12, faint_ink, "live at peak");
    for (int stage = 0; stage < schedule_.shape.stages; ++stage) {
      row(stage);
    }
    axis();
    return page_.finish();
  }

 private:
  double x_of(double time) const { return left + time / timeline_.total * plot_width; }
  static double y_of(int stage) { return top + row_height * stage; }

  void legend() {
    struct Entry {
      std::string_view colour;
      std::string_view name;
    };
    std::vector<Entry> entries = {{colour_of(PipelineWork::forward), "forward"}};
    const bool halves = std::ranges::any_of(schedule_.actions[0], [](const PipelineAction& action) {
      return action.work == PipelineWork::backward_weight;
    });
    entries.push_back(
        {colour_of(PipelineWork::backward), halves ? "backward, for the input" : "backward"});
    if (halves) {
      entries.push_back({colour_of(PipelineWork::backward_weight), "backward, for the weights"});
    }
    entries.push_back({background, "idle"});
    double x = left;
    for (const Entry& entry : entries) {
      page_.add("<rect x=\"{:.1f}\" y=\"70\" width=\"14\" height=\"14\" fill=\"{}\"/>\n", x,
                entry.colour);
      page_.words(x + 20, 82, "start", 12.5, ink, entry.name);
      x += 60 + 7 * static_cast<double>(entry.name.size());
    }
    if (schedule_.shape.chunks > 1) {
      page_.words(x, 82, "start", 12.5, ink, "paler: later chunks");
    }
  }

  void row(int stage) {
    const double y = y_of(stage);
    page_.words(left - 12, y + 19, "end", 12.5, ink, fmt::format("stage {}", stage));
    page_.add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n",
              left, y, plot_width, box_height, background);
    for (const TimedAction& timed : timeline_.stages[stage]) {
      box(stage, timed);
    }
    page_.words(left + plot_width + 12, y + 19, "start", 12.5, ink,
                fmt::format("{:.4g}", static_cast<double>(needs_.peaks[stage].held) /
                                          schedule_.shape.chunks));
  }

  void box(int stage, const TimedAction& timed) {
    const double x = x_of(timed.start);
    const double box_width = x_of(timed.end) - x;
    const double opacity = 1 - 0.55 * timed.action.chunk / schedule_.shape.chunks;
    page_.add(
        "<rect class=\"action\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" "
        "fill=\"{}\" fill-opacity=\"{:.2f}\" stroke=\"#ffffff\" stroke-width=\"{}\"><title>{}, "
        "{:.6g} to {:.6g}</title></rect>\n",
        x, y_of(stage), box_width, box_height, colour_of(timed.action.work), opacity,
        box_width > 4 ? 1 : 0, describe(schedule_, stage, timed.action), timed.start, timed.end);
    const std::string digits = fmt::format("{}", timed.action.micro_batch);
    if (box_width >= digit_width * static_cast<double>(digits.size()) + 3) {
      page_.words(x + box_width / 2, y_of(stage) + 18.5, "middle", 12,
                  opacity > 0.7 ? "#ffffff" : ink, digits);
    }
  }

  void axis() {
    const double y = top + plot_height_;
    page_.line(left, y, left + plot_width, y, faint_ink);
    const double least = timeline_.total * tick_room / plot_width;
    const double power = std::pow(10, std::floor(std::log10(least)));
    double step = 10 * power;
    for (const double digit : {5.0, 2.0, 1.0}) {
      step = digit * power >= least ? digit * power : step;
    }
    for (int i = 0; i * step <= timeline_.total * (1 + 1e-9); ++i) {
      page_.line(x_of(i * step), y, x_of(i * step), y + 5, faint_ink);
      page_.words(x_of(i * step), y + 21, "middle", 12, faint_ink, fmt::format("{:.6g}", i * step));
    }
    page_.words(left + plot_width / 2, y + 46, "middle", 13, ink,
                "time, in the unit of the times given");
  }

  const PipelineSchedule& schedule_;
  const PipelineTimeline& timeline_;
  const PipelineNeeds& needs_;
  const double plot_height_;
  svg::Page page_;
};

}  // namespace

std::string to_svg(const PipelineSchedule& schedule, const PipelineTimeline& timeline,
                   const PipelineNeeds& needs, std::string_view title, std::string_view subtitle) {
  return Drawing(schedule, timeline, needs, title, subtitle).text();
}

}  // namespace ringworld
