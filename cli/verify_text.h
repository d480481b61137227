// What verify says of its combinations: as a table, in sums, and as JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/options.h"
#include "training/parity.h"

namespace ringworld {

// One combination that was verified.
struct VerifyRow {
  std::string strategy;
  DType precision;
  OptimizerKind optimizer;
  std::int64_t accumulation;
  Recomputation recomputation;
  Offload offload;
  OffloadTo offload_to;
  ParallelLayout layout;
  double bound;
  ParityResult result;
  // Whether it has ddp's bits; nothing: no ddp was verified, or this is not the same sum.
  std::optional<bool> equals_ddp = {};
  bool must_equal_ddp = false;

  bool passed() const { return result.passed() && (!must_equal_ddp || equals_ddp == true); }
};

// More rows than these are summed up by strategy and precision.
inline constexpr std::size_t verify_rows_shown = 48;

// A line for each row, or for each strategy and precision.
std::string table_of(const std::vector<VerifyRow>& rows);
std::string summary_of(const std::vector<VerifyRow>& rows);
// The bound of a precision's rows: "3.9e-03", or, where it depends on the mesh, "3.9e-03 to
// 7.4e-02".
std::string bounds_text(const std::vector<VerifyRow>& rows, DType precision);
// What is wrong with a row that did not pass.
std::string broken_text(const VerifyRow& row);
nlohmann::ordered_json json_of(const VerifyRow& row);

}  // namespace ringworld
