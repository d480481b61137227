// ringworld capabilities: which algorithm serves which number format and reduction.
#include "collectives/capabilities.h"

#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_file.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

// The reasons of refusals, each once, numbered from 1.
class Notes {
 public:
  std::size_t number(const std::string& reason) {
    const auto found = std::find(reasons_.begin(), reasons_.end(), reason);
    const auto index = static_cast<std::size_t>(found - reasons_.begin());
    if (found == reasons_.end()) {
      reasons_.push_back(reason);
    }
    return index + 1;
  }

  std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      text += fmt::format("[{}] {}\n", i + 1, reasons_[i]);
    }
    return text;
  }

 private:
  std::vector<std::string> reasons_;
};

// "yes", or the reductions that are served, with the numbers of the notes that say why no others.
std::string cell(const Algorithm& algorithm, DType dtype, Notes& notes) {
  std::vector<std::string> served;
  std::vector<std::string> refused;
  for (const ReduceOp op : all_reduce_ops) {
    if (const std::string reason = refusal(algorithm, dtype, op); reason.empty()) {
      served.emplace_back(name_of(op));
    } else if (const std::string note = fmt::format("[{}]", notes.number(reason));
               std::find(refused.begin(), refused.end(), note) == refused.end()) {
      refused.push_back(note);
    }
  }
  if (refused.empty()) {
    return "yes";
  }
  return fmt::format("{} {}", served.empty() ? "no" : fmt::format("{}", fmt::join(served, " ")),
                     fmt::join(refused, ""));
}

Json json_of(const Algorithm& algorithm, DType dtype, const Json& op, const std::string& reason) {
  return {{"operation", name_of(algorithm.operation)},
          {"algorithm", algorithm.name},
          {"dtype", name_of(dtype)},
          {"op", op},
          {"supported", reason.empty()},
          {"reason", reason.empty() ? Json() : Json(reason)}};
}

// A row for each cell; the op of what does not reduce is null.
Json cells() {
  Json json = Json::array();
  for (const Algorithm& algorithm : algorithms()) {
    for (const DType dtype : all_dtypes) {
      if (!reduces(algorithm.operation)) {
        json.push_back(json_of(algorithm, dtype, Json(), refusal(algorithm, dtype, ReduceOp::sum)));
        continue;
      }
      for (const ReduceOp op : all_reduce_ops) {
        json.push_back(json_of(algorithm, dtype, name_of(op), refusal(algorithm, dtype, op)));
      }
    }
  }
  return json;
}

}  // namespace

ExitCode run_capabilities(const CapabilitiesOptions& o, Transport& transport) {
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  if (o.json != "-") {
    std::vector<Table::Column> columns = {{"operation"}, {"algorithm"}};
    for (const DType dtype : all_dtypes) {
      columns.push_back({std::string(name_of(dtype))});
    }
    Table table(std::move(columns));
    Notes notes;
    for (const Algorithm& algorithm : algorithms()) {
      std::vector<std::string> row = {std::string(name_of(algorithm.operation)), algorithm.name};
      for (const DType dtype : all_dtypes) {
        row.push_back(cell(algorithm, dtype, notes));
      }
      table.add_row(std::move(row));
    }
    std::cout << table.text()
              << "\nyes: with every reduction (sum, avg, min, max), where the operation reduces\n"
              << notes.text() << std::flush;
  }
  if (!o.json.empty()) {
    write_json(o.json, {{"schema", "ringworld.capabilities"}, {"version", 1}, {"cells", cells()}});
  }
  return ExitCode::ok;
}

}  // namespace ringworld
