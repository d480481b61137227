#include "cli/console.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace ringworld {
namespace {

// Characters of a UTF-8 text: all bytes that do not continue one.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string repeat(std::string_view text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) {
    result += text;
  }
  return result;
}

}  // namespace

std::string human_count(double value) {
  if (!std::isfinite(value)) {
    return "?";
  }
  constexpr std::string_view letters[] = {"", "k", "M", "G", "T", "P"};
  std::size_t letter = 0;
  // 999.5 and above would be rounded to four digits.
  while (std::abs(value) >= 999.5 && letter + 1 < std::size(letters)) {
    value /= 1000;
    ++letter;
  }
  if (letter == 0 && value == std::floor(value)) {
    return fmt::format("{:.0f}", value);
  }
  const int decimals = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, letters[letter]);
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) {
    return "?";
  }
  if (seconds < 0.995) {
    return fmt::format("{:.2f}s", seconds);
  }
  if (seconds < 9.95) {
    return fmt::format("{:.1f}s", seconds);
  }
  const auto whole = static_cast<std::int64_t>(std::min(seconds, 1e15) + 0.5);
  if (whole < 60) {
    return fmt::format("{}s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  }
  if (whole < 86400) {
    return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  }
  return fmt::format("{}d {:02}h", whole / 86400, whole / 3600 % 24);
}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw std::invalid_argument(
        fmt::format("{} cells in a table of {} columns", cells.size(), columns_.size()));
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::string> titles;
  std::vector<std::string> rules;
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    titles.push_back(columns_[c].title);
    widths.push_back(width_of(columns_[c].title));
    for (const auto& row : rows_) {
      widths[c] = std::max(widths[c], width_of(row[c]));
    }
    rules.emplace_back(widths[c], '-');
  }
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string blanks(widths[c] - width_of(cells[c]), ' ');
      if (c > 0) {
        line += "  ";
      }
      line += columns_[c].align == Align::right ? blanks + cells[c] : cells[c] + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line(titles);
  add_line(rules);
  for (const auto& row : rows_) {
    add_line(row);
  }
  return text;
}

std::string_view name_of(ProgressStyle style) {
  switch (style) {
    case ProgressStyle::automatic:
      return "auto";
    case ProgressStyle::bar:
      return "bar";
    case ProgressStyle::lines:
      return "lines";
    case ProgressStyle::none:
      return "none";
  }
  return "?";
}

Terminal find_terminal() {
  Terminal terminal;
  terminal.interactive = ::isatty(STDOUT_FILENO) == 1;
  winsize size{};
  if (terminal.interactive && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = std::min<int>(terminal.columns, size.ws_col);
  } else {
    // A pipe knows no width; whoever started the job may have said it.
    const char* columns = std::getenv("COLUMNS");
    const int said = columns == nullptr ? 0 : std::atoi(columns);
    terminal.columns = said > 0 ? std::min(terminal.columns, said) : 80;
  }
  // The first of these that is set decides (POSIX, 8.2).
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') {
      continue;
    }
    const std::string_view locale = value;
    terminal.unicode = locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
    break;
  }
  return terminal;
}

std::string sparkline(const std::vector<double>& values, std::size_t width) {
  const std::size_t blocks = std::min(width, values.size());
  std::vector<double> means;
  for (std::size_t b = 0; b < blocks; ++b) {
    double sum = 0;
    int count = 0;
    for (std::size_t i = b * values.size() / blocks; i < (b + 1) * values.size() / blocks; ++i) {
      if (!std::isfinite(values[i])) {
        continue;
      }
      sum += values[i];
      ++count;
    }
    if (count > 0) {
      means.push_back(sum / count);
    }
  }
  if (means.empty()) {
    return "";
  }
  constexpr std::string_view levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  const double range = *high - *low;
  std::string line;
  for (const double mean : means) {
    const double level = range > 0 ? (mean - *low) / range * 7 : 0;
    line += levels[static_cast<std::size_t>(std::lround(level))];
  }
  return line;
}

Progress::Progress(std::ostream& out, ProgressStyle style, std::int64_t steps, Terminal terminal)
    : out_(out), style_(style), steps_(steps), terminal_(terminal) {
  if (style_ == ProgressStyle::automatic) {
    style_ = terminal.interactive ? ProgressStyle::bar : ProgressStyle::lines;
  }
}

Progress::~Progress() {
  finish();
}

void Progress::finish() {
  if (drawn_ == 0) {
    return;
  }
  out_ << '\n' << std::flush;
  drawn_ = 0;
}

void Progress::step(const StepMetrics& metrics) {
  if (style_ == ProgressStyle::none) {
    return;
  }
  now_ += metrics.step_seconds;
  const double weight = losses_.empty() ? 1 : 0.2;  // the last ten steps or so
  step_seconds_ += weight * (metrics.step_seconds - step_seconds_);
  rate_ += weight * (metrics.tokens_per_second - rate_);
  losses_.push_back(metrics.loss);
  if (metrics.validation_loss) {
    validation_loss_ = metrics.validation_loss;
  }

  if (!line_is_due(metrics)) {
    return;
  }
  shown_at_ = now_;
  style_ == ProgressStyle::bar ? draw_bar(metrics) : print_line(metrics);
}

bool Progress::line_is_due(const StepMetrics& metrics) const {
  if (losses_.size() == 1 || metrics.step == steps_) {
    return true;
  }
  if (style_ == ProgressStyle::bar) {
    return now_ - shown_at_ >= 0.1;
  }
  const std::int64_t every = std::max<std::int64_t>(1, steps_ / 20);
  return metrics.step % every == 0 || metrics.validation_loss || now_ - shown_at_ >= 30;
}

std::string Progress::remaining(const StepMetrics& metrics) const {
  if (metrics.step >= steps_) {
    return fmt::format("in {}", human_duration(now_));
  }
  return fmt::format("ETA {}",
                     human_duration(step_seconds_ * static_cast<double>(steps_ - metrics.step)));
}

void Progress::print_line(const StepMetrics& metrics) {
  std::string line = fmt::format("step {}/{}  loss {:.4f}", metrics.step, steps_, metrics.loss);
  if (metrics.validation_loss) {
    line += fmt::format("  validation {:.4f}", *metrics.validation_loss);
  }
  line += metrics.skipped
              ? fmt::format("  skipped, overflow at loss scale {}", metrics.loss_scale.value_or(1))
              : fmt::format("  grad norm {:.3g}", metrics.grad_norm);
  line += fmt::format("  lr {:.2e}  {} tokens/s  {}", metrics.learning_rate, human_count(rate_),
                      remaining(metrics));
  out_ << line << '\n' << std::flush;
}

void Progress::draw_bar(const StepMetrics& metrics) {
  const auto columns = static_cast<std::size_t>(std::max(1, terminal_.columns - 1));
  const double done = static_cast<double>(metrics.step) / static_cast<double>(steps_);
  std::string head = fmt::format("step {}/{} ", metrics.step, steps_);
  std::string tail = fmt::format(" {:3.0f}%  loss {:.4f}", std::floor(100 * done), metrics.loss);
  const std::string speed =
      fmt::format("  {} tokens/s  {}", human_count(rate_), remaining(metrics));
  if (terminal_.unicode && columns >= 90) {
    tail += fmt::format(" {}", sparkline(losses_, 12));
  }
  if (validation_loss_) {
    tail += fmt::format("  val {:.4f}", *validation_loss_);
  }
  tail += speed;

  // The bar takes what is left, within reason; without room for one there is none.
  constexpr std::size_t widest = 30;
  const std::size_t used = head.size() + width_of(tail);
  const std::size_t room = std::min(widest, columns > used ? columns - used : 0);
  if (room >= 5) {
    const auto full = static_cast<std::size_t>(done * static_cast<double>(room));
    head += repeat(terminal_.unicode ? "█" : "#", full) +
            repeat(terminal_.unicode ? "░" : ".", room - full);
  }
  std::string line = head + tail;
  while (width_of(line) > columns) {
    line.pop_back();
  }
  // Blanks wipe out what a longer line left behind.
  const std::size_t width = width_of(line);
  const std::size_t left_over = drawn_ > width ? drawn_ - width : 0;
  out_ << '\r' << line << std::string(left_over, ' ') << std::flush;
  drawn_ = width;
}

}  // namespace ringworld
