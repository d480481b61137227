#include "planner/validate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "planner/published_steps.h"

namespace ringworld {
namespace {

std::string_view unit_of(ThroughputMeasure measure) {
  return measure == ThroughputMeasure::tokens ? "tokens/s and GPU" : "TFLOP/s and GPU";
}

// Rows of tables that fit their machine's constant, by machine.
std::map<std::string, std::vector<FittedRow>> rows_to_fit(const Machines& machines) {
  std::map<std::string, std::vector<FittedRow>> rows;
  for (const PublishedStepTable& table : published_step_tables()) {
    if (!table.fitted) {
      continue;
    }
    for (const PublishedStep& row : table.rows) {
      const std::size_t best = best_layout(row, machine_of(machines, row));
      rows[row.machine].push_back({&row, row.layouts[best]});
    }
  }
  return rows;
}

// The machine's constant without each row in turn.
std::map<const PublishedStep*, double> leave_each_out(const Machines& machines,
                                                      const std::vector<FittedRow>& rows) {
  std::map<const PublishedStep*, double> constants;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<FittedRow> others = rows;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    constants[rows[i].row] = fit_sustained(machines, others);
  }
  return constants;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double largest_of(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::ranges::max_element(values);
}

std::vector<double> errors_of(const ValidationTable& table) {
  std::vector<double> errors;
  for (const ValidationRow& row : table.rows) {
    errors.push_back(std::abs(row.error()));
  }
  return errors;
}

std::vector<double> left_out_errors_of(const ValidationTable& table) {
  std::vector<double> errors;
  for (const ValidationRow& row : table.rows) {
    if (row.left_out) {
      errors.push_back(std::abs(*row.left_out / row.published - 1));
    }
  }
  return errors;
}

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

bool ValidationRow::within_tolerance() const {
  return std::abs(ours - published) <= tolerance;
}

double ValidationTable::mean_error() const {
  return mean_of(errors_of(*this));
}

double ValidationTable::largest_error() const {
  return largest_of(errors_of(*this));
}

std::optional<double> ValidationTable::mean_left_out_error() const {
  const std::vector<double> errors = left_out_errors_of(*this);
  return errors.empty() ? std::nullopt : std::optional(mean_of(errors));
}

std::optional<double> ValidationTable::largest_left_out_error() const {
  const std::vector<double> errors = left_out_errors_of(*this);
  return errors.empty() ? std::nullopt : std::optional(largest_of(errors));
}

bool ValidationTable::passes() const {
  switch (kind) {
    case ValidationKind::exact:
      return std::ranges::all_of(rows, &ValidationRow::within_tolerance);
    case ValidationKind::limited:
      return largest_error() < largest_error_limit;  // the mean counts over all such tables
    case ValidationKind::informing:
      return true;
  }
  return false;
}

bool Validation::passes() const {
  return std::ranges::all_of(tables, &ValidationTable::passes) && mean_error < mean_error_limit;
}

Validation validate(const Machines& machines) {
  Validation validation;
  for (std::vector<ValidationTable> tables :
       {validate_memory(), validate_formulas(), validate_models(machines)}) {
    std::ranges::move(tables, std::back_inserter(validation.tables));
  }
  std::map<const PublishedStep*, double> left_out;
  std::map<const PublishedStep*, Layout> layouts;
  for (const auto& [name, rows] : rows_to_fit(machines)) {
    const std::map<const PublishedStep*, double> constants = leave_each_out(machines, rows);
    FittedConstant constant{.machine = name,
                            .built_in = machines.find(name).sustained.value,
                            .fitted = fit_sustained(machines, rows),
                            .lowest = 1,
                            .highest = 0,
                            .rows = rows.size()};
    for (const auto& [row, value] : constants) {
      constant.lowest = std::min(constant.lowest, value);
      constant.highest = std::max(constant.highest, value);
    }
    validation.constants.push_back(constant);
    left_out.insert(constants.begin(), constants.end());
    for (const FittedRow& row : rows) {
      layouts[row.row] = row.layout;
    }
  }
  std::vector<double> errors;
  std::vector<double> left_out_errors;
  for (const PublishedStepTable& published : published_step_tables()) {
    ValidationTable table{
        .name = published.name,
        .source = published.source,
        .unit = std::string(unit_of(published.rows.front().measure)),
        .note = published.note,
        .kind = published.required ? ValidationKind::limited : ValidationKind::informing,
        .rows = {}};
    for (const PublishedStep& row : published.rows) {
      Machine machine = machine_of(machines, row);
      const Layout layout =
          layouts.contains(&row) ? layouts[&row] : row.layouts[best_layout(row, machine)];
      ValidationRow result{
          .label = row.label, .published = row.value, .ours = predict(row, layout, machine)};
      if (left_out.contains(&row)) {
        machine.sustained.value = left_out[&row];
        result.left_out = predict(row, layout, machine);
      }
      table.rows.push_back(std::move(result));
    }
    if (published.required) {
      append(errors, errors_of(table));
      append(left_out_errors, left_out_errors_of(table));
    }
    validation.tables.push_back(std::move(table));
  }
  validation.limited_rows = errors.size();
  validation.mean_error = mean_of(errors);
  validation.largest_error = largest_of(errors);
  validation.mean_left_out_error = mean_of(left_out_errors);
  validation.largest_left_out_error = largest_of(left_out_errors);
  return validation;
}

}  // namespace ringworld
