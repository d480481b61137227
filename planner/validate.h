// The planner against what was published: every number beside ours.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/hardware.h"

namespace ringworld {

struct ValidationRow {
  std::string label;
  double published = 0;
  double ours = 0;
  // Ours with the device's constant fitted without this row; empty where nothing is fitted.
  std::optional<double> left_out = {};
  double tolerance =
      0;  // absolute: how far published values were rounded; 0 where it does not count

  double error() const { return ours / published - 1; }
  bool within_tolerance() const;
};

enum class ValidationKind : std::uint8_t {
  exact,      // every row within its tolerance
  limited,    // mean and largest error have a limit
  informing,  // shown as it is
};

struct ValidationTable {
  std::string name;
  std::string source;
  std::string unit;
  std::string note;
  ValidationKind kind = ValidationKind::informing;
  std::vector<ValidationRow> rows;

  double mean_error() const;     // of absolute relative errors
  double largest_error() const;  // likewise
  std::optional<double> mean_left_out_error() const;
  std::optional<double> largest_left_out_error() const;
  bool passes() const;
};

// Limits of the throughput tables that are required, together and each.
inline constexpr double mean_error_limit = 0.08;
inline constexpr double largest_error_limit = 0.20;

// The one constant that is fitted, by device.
struct FittedConstant {
  std::string machine;
  double built_in = 0;
  double fitted = 0;  // to all rows of this machine that are for fitting
  double lowest = 0;  // with one row left out
  double highest = 0;
  std::size_t rows = 0;
};

struct Validation {
  std::vector<ValidationTable> tables;
  std::vector<FittedConstant> constants;
  // Over all rows of tables with a limit.
  double mean_error = 0;
  double largest_error = 0;
  double mean_left_out_error = 0;
  double largest_left_out_error = 0;
  std::size_t limited_rows = 0;

  bool passes() const;
};
Validation validate(const Machines& machines);

// What follows from formulas: of memory, and of all else.
std::vector<ValidationTable> validate_memory();
std::vector<ValidationTable> validate_formulas();
// The models of network, kernels and whole trainings by themselves.
std::vector<ValidationTable> validate_models(const Machines& machines);

std::string to_markdown(const Validation& validation);

}  // namespace ringworld
