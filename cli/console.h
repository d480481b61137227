// What a person sees while ringworld works: progress, tables, readable numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "training/metrics.h"

namespace ringworld {

// --- Readable numbers ---------------------------------------------------------------------------

// Three digits and a letter: "7", "950", "12.3k", "4.56M". Bytes have to_string in runtime/bytes.h.
std::string human_count(double value);
// The two largest units: "0.42s", "8.5s", "1m 20s", "2h 05m", "3d 04h"; "?" when not finite.
std::string human_duration(double seconds);

// --- Tables -------------------------------------------------------------------------------------

enum class Align : std::uint8_t { left, right };

// Rows of text under titles, columns as wide as their widest cell.
class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns, else std::invalid_argument.
  void add_row(std::vector<std::string> cells);
  // Titles, a rule, the rows; every line ends with a line end and none with blanks.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// --- Progress -----------------------------------------------------------------------------------

enum class ProgressStyle : std::uint8_t { automatic, bar, lines, none };
inline constexpr ProgressStyle all_progress_styles[] = {
    ProgressStyle::automatic, ProgressStyle::bar, ProgressStyle::lines, ProgressStyle::none};
std::string_view name_of(ProgressStyle style);  // "auto", "bar", ...

struct Terminal {
  bool interactive = false;  // someone watches: a line may be drawn over
  int columns = 100;
  bool unicode = false;  // the locale's encoding is UTF-8
};
// Of standard output; at most 100 columns wide. mpiexec puts a pipe there, so a bar under it must
// be asked for.
Terminal find_terminal();

// Shows how training goes on: as a bar drawn again and again over itself, at most ten times a
// second, or as lines, about twenty in a run and one for each measured validation loss. For one
// rank.
class Progress {
 public:
  Progress(std::ostream& out, ProgressStyle style, std::int64_t steps, Terminal terminal);
  ~Progress();  // as finish
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepMetrics& metrics);
  // Ends the bar's line, so that what is printed next begins on one of its own.
  void finish();

 private:
  bool line_is_due(const StepMetrics& metrics) const;
  void draw_bar(const StepMetrics& metrics);
  void print_line(const StepMetrics& metrics);
  std::string remaining(const StepMetrics& metrics) const;

  std::ostream& out_;
  ProgressStyle style_;  // never automatic
  std::int64_t steps_;
  Terminal terminal_;
  // Time as the sum of steps: what is shown depends on what is measured, not on a clock of its own.
  double now_ = 0;           // seconds
  double shown_at_ = 0;      // seconds
  double step_seconds_ = 0;  // smoothed
  double rate_ = 0;          // tokens per second, smoothed
  std::vector<double> losses_;
  std::optional<double> validation_loss_;  // the latest
  std::size_t drawn_ = 0;                  // columns of the bar that is on the screen
};

// The values as a row of blocks, at most `width`, low to high: "▁▃█". Several values to a block are
// averaged, values that are not finite left out.
std::string sparkline(const std::vector<double>& values, std::size_t width);

}  // namespace ringworld
