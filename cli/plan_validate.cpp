// ringworld plan validate: every published table that the planner can be held against, ours beside.
#include <cmath>
#include <iostream>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/help_formatter.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "planner/validate.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t widest = 100;

// Without a sign where it is nothing.
std::string error_text(double error) {
  const double percent = 100 * error;
  return std::abs(percent) < 0.05 ? "0.0 %" : fmt::format("{:+.1f} %", percent);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string rows_text(const ValidationTable& table) {
  const bool fitted = table.mean_left_out_error().has_value();
  std::vector<Table::Column> columns = {{"  " + table.unit},
                                        {"published", Align::right},
                                        {"ours", Align::right},
                                        {"error", Align::right}};
  if (fitted) {
    columns.push_back({"left out", Align::right});
  }
  Table text(columns);
  for (const ValidationRow& row : table.rows) {
    std::vector<std::string> cells = {"  " + row.label, fmt::format("{:.5g}", row.published),
                                      fmt::format("{:.5g}", row.ours), error_text(row.error())};
    if (fitted) {
      cells.push_back(error_text(*row.left_out / row.published - 1));
    }
    text.add_row(std::move(cells));
  }
  return text.text();
}

std::string verdict_of(const ValidationTable& table) {
  switch (table.kind) {
    case ValidationKind::exact:
      return table.passes() ? "within rounding" : "WRONG";
    case ValidationKind::limited:
      return table.passes() ? "within limits" : "BEYOND LIMITS";
    case ValidationKind::informing:
      return "as it is";
  }
  return "";
}

std::string text_of(const Validation& v, bool all) {
  std::string text = "The planner against what was published\n\n";
  Table overview({{"table"},
                  {"rows", Align::right},
                  {"mean error", Align::right},
                  {"largest", Align::right},
                  {"left out", Align::right},
                  {"largest", Align::right},
                  {""}});
  for (const ValidationTable& table : v.tables) {
    const std::optional<double> mean = table.mean_left_out_error();
    overview.add_row({table.name, fmt::format("{}", table.rows.size()), percent(table.mean_error()),
                      percent(table.largest_error()), mean ? percent(*mean) : "",
                      mean ? percent(*table.largest_left_out_error()) : "", verdict_of(table)});
  }
  text += overview.text();
  for (const ValidationTable& table : v.tables) {
    if (table.kind == ValidationKind::exact && !all && table.passes()) {
      continue;
    }
    text +=
        fmt::format("\n{}\n  {}\n{}\n", table.name, wrap(table.source, widest - 2, 2),
                    table.note.empty() ? std::string()
                                       : fmt::format("  {}\n", wrap(table.note, widest - 2, 2)));
    text += rows_text(table);
  }
  Table constants({{"fitted: sustained"},
                   {"rows", Align::right},
                   {"built in", Align::right},
                   {"fitted", Align::right},
                   {"with one row left out", Align::right}});
  for (const FittedConstant& c : v.constants) {
    constants.add_row({c.machine, fmt::format("{}", c.rows), fmt::format("{:.3f}", c.built_in),
                       fmt::format("{:.3f}", c.fitted),
                       fmt::format("{:.3f} to {:.3f}", c.lowest, c.highest)});
  }
  text += fmt::format("\n{}\n", constants.text());
  text += fmt::format(
      "{} rows with limits: mean error {} (limit {}), largest {} (limit {});\n"
      "each left out of the fit: mean {}, largest {}: {}\n",
      v.limited_rows, percent(v.mean_error), percent(mean_error_limit), percent(v.largest_error),
      percent(largest_error_limit), percent(v.mean_left_out_error),
      percent(v.largest_left_out_error), v.passes() ? "they are met" : "NOT MET");
  return text;
}

Json json_of(const Validation& v) {
  Json tables = Json::array();
  for (const ValidationTable& table : v.tables) {
    Json rows = Json::array();
    for (const ValidationRow& row : table.rows) {
      rows.push_back({{"row", row.label},
                      {"published", row.published},
                      {"ours", row.ours},
                      {"error", row.error()},
                      {"left_out", row.left_out ? Json(*row.left_out) : Json()}});
    }
    constexpr std::string_view kinds[] = {"exact", "limited", "informing"};
    tables.push_back({{"table", table.name},
                      {"source", table.source},
                      {"unit", table.unit},
                      {"note", table.note},
                      {"kind", kinds[static_cast<std::size_t>(table.kind)]},
                      {"mean_error", table.mean_error()},
                      {"largest_error", table.largest_error()},
                      {"passes", table.passes()},
                      {"rows", std::move(rows)}});
  }
  Json constants = Json::array();
  for (const FittedConstant& c : v.constants) {
    constants.push_back({{"machine", c.machine},
                         {"constant", "sustained"},
                         {"rows", c.rows},
                         {"built_in", c.built_in},
                         {"fitted", c.fitted},
                         {"lowest_left_out", c.lowest},
                         {"highest_left_out", c.highest}});
  }
  return {{"schema", "ringworld.plan_validate"},
          {"version", 1},
          {"passes", v.passes()},
          {"limited_rows", v.limited_rows},
          {"mean_error", v.mean_error},
          {"largest_error", v.largest_error},
          {"mean_left_out_error", v.mean_left_out_error},
          {"largest_left_out_error", v.largest_left_out_error},
          {"constants", std::move(constants)},
          {"tables", std::move(tables)}};
}

}  // namespace

ExitCode run_plan_validate(const PlanValidateOptions& o, Transport& transport) {
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  check_writable("--markdown", o.markdown);
  check_writable("--json", o.json);
  Machines machines;
  if (!o.hardware.empty()) {
    machines.read(o.hardware);
  }
  const Validation validation = validate(machines);
  if (o.json != "-" && o.markdown != "-") {
    std::cout << text_of(validation, o.all) << std::flush;
  }
  write_file("--markdown", o.markdown,
             o.markdown.empty() ? std::string() : to_markdown(validation));
  if (!o.json.empty()) {
    write_json(o.json, json_of(validation));
  }
  return validation.passes() ? ExitCode::ok : ExitCode::failed;
}

}  // namespace ringworld
