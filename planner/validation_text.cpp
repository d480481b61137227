// The validation as the text of docs/validation.md.
#include <cmath>

#include <fmt/format.h>

#include "planner/validate.h"

namespace ringworld {
namespace {

std::string number(double value) {
  const double size = std::abs(value);
  if (size >= 1e15) {
    return fmt::format("{:.4g}", value);
  }
  if (size >= 1000) {
    return fmt::format("{:.0f}", value);
  }
  return fmt::format("{:.4g}", value);
}

std::string percent(double share) {
  const double percent = 100 * share;
  return std::abs(percent) < 0.05 ? "0.0 %" : fmt::format("{:+.1f} %", percent);
}

std::string summary(const ValidationTable& table) {
  std::string text = fmt::format("Mean error {:.1f} %, largest {:.1f} %", 100 * table.mean_error(),
                                 100 * table.largest_error());
  if (const std::optional<double> mean = table.mean_left_out_error()) {
    text += fmt::format("; with the row left out of the fit {:.1f} % and {:.1f} %", 100 * *mean,
                        100 * *table.largest_left_out_error());
  }
  if (table.kind == ValidationKind::exact) {
    text += table.passes() ? "; every row is within the rounding of what was printed"
                           : "; some rows are beyond the rounding of what was printed";
  }
  return text + ".";
}

std::string table_text(const ValidationTable& table) {
  const bool fitted = table.mean_left_out_error().has_value();
  std::string text = fmt::format("## {}\n\n{}.{}{}\n\n{}\n\n", table.name, table.source,
                                 table.note.empty() ? "" : " ", table.note, summary(table));
  text += fmt::format("| {} | published | ours | error |{}\n|---|---|---|---|{}\n", table.unit,
                      fitted ? " left out |" : "", fitted ? "---|" : "");
  for (const ValidationRow& row : table.rows) {
    text += fmt::format("| {} | {} | {} | {} |", row.label, number(row.published), number(row.ours),
                        percent(row.error()));
    if (fitted) {
      text += fmt::format(" {} |", percent(*row.left_out / row.published - 1));
    }
    text += "\n";
  }
  return text + "\n";
}

}  // namespace

std::string to_markdown(const Validation& validation) {
  std::string text = fmt::format(
      "# The planner against what was published\n\n"
      "Written by `ringworld plan validate --markdown docs/validation.md`; nothing here is typed "
      "by "
      "hand.\n\n"
      "Throughput that must be met (Megatron-LM tables 1 and 2, MT-NLG, Llama 3 table 4), {} rows: "
      "mean error\n{:.1f} %, largest {:.1f} %. With each row left out of the fit: mean {:.1f} %, "
      "largest {:.1f} %.\nLimits: {:.0f} % and {:.0f} %.\n\n"
      "## What is fitted\n\n"
      "One number for each device, how much of its best matrix product's rate lasts through a "
      "training\nstep (`sustained`). Everything else is from datasheets, microbenchmarks that "
      "others "
      "published, or\nsaid to be assumed; `ringworld plan step` prints every constant with its "
      "source. The structure of the\nmodel was chosen with these tables in view, too: errors of "
      "rows left out say how the constant\ngeneralises, not how the structure does. For that, look "
      "at the tables that nothing was fitted to.\n\n"
      "| device | rows | built in | fitted to all | with one left out |\n|---|---|---|---|---|\n",
      validation.limited_rows, 100 * validation.mean_error, 100 * validation.largest_error,
      100 * validation.mean_left_out_error, 100 * validation.largest_left_out_error,
      100 * mean_error_limit, 100 * largest_error_limit);
  for (const FittedConstant& constant : validation.constants) {
    text += fmt::format("| {} | {} | {:.3f} | {:.3f} | {:.3f} to {:.3f} |\n", constant.machine,
                        constant.rows, constant.built_in, constant.fitted, constant.lowest,
                        constant.highest);
  }
  text += "\n";
  for (const ValidationTable& table : validation.tables) {
    text += table_text(table);
  }
  text.pop_back();
  return text;
}

}  // namespace ringworld
