#include "cli/pipeline_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace ringworld {
namespace {

constexpr int most_rows = 64;    // of all bands together, where there are several
constexpr int most_units = 512;  // that are worth a column of their own
constexpr int letters = 26;
constexpr int ruler_room = 6;  // characters between two numbers, at least

// How characters stand for time.
struct Scale {
  double unit;     // time of one cell
  int cell;        // characters
  bool labels;     // cells hold micro-batches
  bool separated;  // a cell ends with a blank
  int cells;       // of the whole time
  int cells_per_band;
};

int left_width(const PipelineSchedule& schedule) {
  return static_cast<int>(fmt::formatted_size("stage {}  ", schedule.shape.stages - 1));
}

Scale choose_scale(const PipelineSchedule& schedule, const PipelineTimeline& timeline, int room) {
  const auto [stages, micro_batches, chunks] = schedule.shape;
  const int label =
      1 + static_cast<int>(fmt::formatted_size("{}", micro_batches - 1)) + (chunks > 1 ? 1 : 0);
  if (const double unit = common_unit(timeline, most_units); unit > 0 && chunks <= letters) {
    const int units = static_cast<int>(std::lround(timeline.total / unit));
    if (units * (label + 1) <= room) {
      return {unit, label + 1, true, true, units, units};
    }
    const int per_band = room / label;
    const int bands = per_band == 0 ? most_rows : (units + per_band - 1) / per_band;
    if (bands == 1 || bands * stages <= most_rows) {
      return {unit, label, true, false, units, per_band};
    }
    if (units <= room) {
      return {unit, 1, false, false, units, units};
    }
  }
  return {timeline.total / room, 1, false, false, room, room};
}

std::string labelled_row(const PipelineSchedule& schedule, const std::vector<TimedAction>& actions,
                         const Scale& scale) {
  const int idle_width = scale.cell - (scale.separated ? 1 : 0);
  std::string row;
  for (int i = 0; i < scale.cells; ++i) {
    row += fmt::format("{:.<{}}{}", "", idle_width, scale.separated ? " " : "");
  }
  for (const TimedAction& timed : actions) {
    const auto cell_at = [&](double time) {
      return static_cast<std::size_t>(std::lround(time / scale.unit) * scale.cell);
    };
    const std::size_t first = cell_at(timed.start);
    const std::size_t end = cell_at(timed.end);
    if (end == first) {
      continue;  // it takes no time
    }
    const std::size_t length = end - first - (scale.separated ? 1 : 0);
    std::string text = fmt::format("{}{}", letter_of(timed.action.work), timed.action.micro_batch);
    if (schedule.shape.chunks > 1) {
      text += static_cast<char>('a' + timed.action.chunk);
    }
    row.replace(first, length, fmt::format("{:-<{}}", text, length));
  }
  return row;
}

std::string letters_row(const std::vector<TimedAction>& actions, const Scale& scale) {
  std::string row;
  std::size_t next = 0;
  for (int i = 0; i < scale.cells; ++i) {
    const double middle = (i + 0.5) * scale.unit;
    while (next < actions.size() && actions[next].end <= middle) {
      ++next;
    }
    const bool works = next < actions.size() && actions[next].start <= middle;
    row += works ? letter_of(actions[next].action.work) : '.';
  }
  return row;
}

// Numbers over the cells where these times begin.
std::string ruler(const Scale& scale, int first, int last) {
  int step = 1;
  for (int i = 0; step * scale.cell < ruler_room; ++i) {
    step = i % 3 == 1 ? step / 2 * 5 : step * 2;  // 1 2 5 10 20 50
  }
  std::string text;
  for (int i = (first + step - 1) / step * step; i < last; i += step) {
    const auto column = static_cast<std::size_t>((i - first) * scale.cell);
    if (column >= text.size() + (text.empty() ? 0 : 1)) {  // a long number may need two steps
      text.resize(column, ' ');
      text += fmt::format("{:.4g}", i * scale.unit);
    }
  }
  return text;
}

// Euclid's algorithm; what is not above `rounding` is no remainder.
double common_divisor(double a, double b, double rounding) {
  while (b > rounding) {
    a = std::exchange(b, std::fmod(a, b));
  }
  return a;
}

std::string without_end_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string legend(const PipelineSchedule& schedule, const Scale& scale) {
  bool halves = false;
  for (const PipelineAction& action : schedule.actions[0]) {
    halves = halves || action.work == PipelineWork::backward_weight;
  }
  std::string text =
      scale.labels ? "F0 is forward of micro-batch 0, B0 its backward" : "F is forward, B backward";
  if (halves) {
    text +=
        scale.labels ? " for the input, W0 for the weights" : " for the input, W for the weights";
  }
  if (scale.labels && schedule.shape.chunks > 1) {
    text += fmt::format(", a to {} the chunk", static_cast<char>('a' + schedule.shape.chunks - 1));
  }
  text += "; . is idle.\n";
  if (scale.labels) {
    return fmt::format("{}{} characters are {:.4g} of time.\n", text, scale.cell, scale.unit);
  }
  return fmt::format("{}A character is {:.4g} of time; --svg and --trace show every action.\n",
                     text, scale.unit);
}

}  // namespace

char letter_of(PipelineWork work) {
  switch (work) {
    case PipelineWork::forward:
      return 'F';
    case PipelineWork::backward:
    case PipelineWork::backward_input:
      return 'B';
    case PipelineWork::backward_weight:
      return 'W';
  }
  return '?';
}

double common_unit(const PipelineTimeline& timeline, int most) {
  const double least = timeline.total / most;
  double unit = 0;
  for (const std::vector<TimedAction>& actions : timeline.stages) {
    for (const TimedAction& timed : actions) {
      for (const double time : {timed.start, timed.end}) {
        unit = common_divisor(unit, time, 1e-9 * timeline.total);
        if (unit > 0 && unit < least) {
          return 0;
        }
      }
    }
  }
  return unit;
}

std::string timeline_text(const PipelineSchedule& schedule, const PipelineTimeline& timeline,
                          int columns) {
  const int left = left_width(schedule);
  const Scale scale = choose_scale(schedule, timeline, std::max(10, columns - left));
  std::vector<std::string> rows;
  for (const std::vector<TimedAction>& actions : timeline.stages) {
    rows.push_back(scale.labels ? labelled_row(schedule, actions, scale)
                                : letters_row(actions, scale));
  }
  std::string text;
  for (int first = 0; first < scale.cells; first += scale.cells_per_band) {
    const int last = std::min(first + scale.cells_per_band, scale.cells);
    text += first == 0 ? "" : "\n";
    text += without_end_blanks(fmt::format("{:<{}}{}", "time", left, ruler(scale, first, last)));
    text += '\n';
    for (std::size_t stage = 0; stage < rows.size(); ++stage) {
      const std::string band =
          rows[stage].substr(static_cast<std::size_t>(first * scale.cell),
                             static_cast<std::size_t>((last - first) * scale.cell));
      text +=
          without_end_blanks(fmt::format("{:<{}}{}", fmt::format("stage {}", stage), left, band));
      text += '\n';
    }
  }
  return text + "\n" + legend(schedule, scale);
}

}  // namespace ringworld
