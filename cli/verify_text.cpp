#include "cli/verify_text.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "cli/console.h"

namespace ringworld {
namespace {

constexpr std::size_t differences_shown = 10;
std::string offload_text(const VerifyRow& row) {
  return row.offload == Offload::none
             ? "none"
             : fmt::format("{}:{}", name_of(row.offload), name_of(row.offload_to));
}

std::string error_text(double error) {
  return error == 0 ? "0" : fmt::format("{:.1e}", error);
}

// A row that breaks in its first step has counted nothing.
bool has_counted(const ParityResult& r) {
  return r.state_expected.value > 0;
}

std::string bytes_text(const ParityResult& r) {
  if (!has_counted(r)) {
    return "-";
  }
  return r.bytes_sent == r.bytes_expected
             ? fmt::format("{} = theory", r.bytes_sent.value)
             : fmt::format("{}, theory {}", r.bytes_sent.value, r.bytes_expected.value);
}

std::string memory_text(const ParityResult& r) {
  if (!has_counted(r)) {
    return "-";
  }
  return r.state_held == r.state_expected
             ? fmt::format("{} = theory", to_string(r.state_held))
             : fmt::format("{}, theory {}", to_string(r.state_held), to_string(r.state_expected));
}

std::string bits_text(const VerifyRow& row) {
  if (row.result.bit_equal) {
    return "equal";
  }
  return !row.equals_ddp ? "differ" : *row.equals_ddp ? "ddp's" : "differ";
}

nlohmann::ordered_json json_of(const Difference& d) {
  return {{"what", d.what},
          {"step", d.step},
          {"rank", d.rank},
          {"relative_error", d.relative_error},
          {"ratio", d.ratio}};
}

}  // namespace

std::string bounds_text(const std::vector<VerifyRow>& rows, DType precision) {
  std::set<double> bounds;
  for (const VerifyRow& row : rows) {
    if (row.precision == precision) {
      bounds.insert(row.bound);
    }
  }
  if (bounds.size() < 2) {
    return bounds.empty() ? "-" : error_text(*bounds.begin());
  }
  return fmt::format("{} to {}", error_text(*bounds.begin()), error_text(*bounds.rbegin()));
}

std::string table_of(const std::vector<VerifyRow>& rows) {
  const bool more = std::ranges::any_of(rows, [](const VerifyRow& row) {
    return row.offload != Offload::none || to_string(row.recomputation) != "none";
  });
  const bool meshes =
      std::ranges::any_of(rows, [](const VerifyRow& row) { return row.layout.mesh.has_value(); });
  std::vector<Table::Column> columns{{"strategy"}};
  if (meshes) {
    columns.push_back({"mesh"});
  }
  columns.insert(columns.end(), {{"precision"}, {"micro", Align::right}});
  if (more) {
    columns.insert(columns.end(), {{"recompute"}, {"offload"}});
  }
  columns.insert(columns.end(), {{"error", Align::right},
                                 {"worst tensor"},
                                 {"bits"},
                                 {"bytes sent"},
                                 {"state"},
                                 {"verdict"}});
  Table table(columns);
  for (const VerifyRow& row : rows) {
    const ParityResult& r = row.result;
    std::vector<std::string> cells{row.strategy};
    if (meshes) {
      cells.push_back(to_string(row.layout));
    }
    cells.push_back(fmt::format("{} {}", name_of(row.precision), name_of(row.optimizer)));
    cells.push_back(fmt::format("{}", row.accumulation));
    if (more) {
      cells.insert(cells.end(), {to_string(row.recomputation), offload_text(row)});
    }
    cells.insert(cells.end(), {error_text(r.largest.relative_error), r.largest.what, bits_text(row),
                               bytes_text(r), memory_text(r), row.passed() ? "equal" : "WRONG"});
    table.add_row(cells);
  }
  return table.text();
}

std::string summary_of(const std::vector<VerifyRow>& rows) {
  Table table({{"strategy"},
               {"precision"},
               {"combinations", Align::right},
               {"equal", Align::right},
               {"largest error", Align::right},
               {"worst tensor"},
               {"ddp's bits", Align::right},
               {"bytes = theory", Align::right},
               {"state = theory", Align::right},
               {"verdict"}});
  std::vector<std::pair<std::string, DType>> keys;
  for (const VerifyRow& row : rows) {
    const std::pair key(row.strategy, row.precision);
    if (std::ranges::find(keys, key) == keys.end()) {
      keys.push_back(key);
    }
  }
  for (const auto& [strategy, precision] : keys) {
    std::vector<const VerifyRow*> of_key;
    for (const VerifyRow& row : rows) {
      if (row.strategy == strategy && row.precision == precision) {
        of_key.push_back(&row);
      }
    }
    const auto count = [&](auto holds) {
      return fmt::format("{}", std::ranges::count_if(of_key, holds));
    };
    const auto compared = std::ranges::count_if(
        of_key, [](const VerifyRow* row) { return row->equals_ddp.has_value(); });
    const VerifyRow& worst = **std::ranges::max_element(
        of_key, {}, [](const VerifyRow* row) { return row->result.largest.relative_error; });
    const bool passed =
        std::ranges::all_of(of_key, [](const VerifyRow* row) { return row->passed(); });
    table.add_row(
        {strategy, std::string(name_of(precision)), fmt::format("{}", of_key.size()),
         count([](const VerifyRow* row) { return row->passed(); }),
         error_text(worst.result.largest.relative_error), worst.result.largest.what,
         fmt::format("{} of {}",
                     count([](const VerifyRow* row) { return row->equals_ddp == true; }), compared),
         count([](const VerifyRow* row) {
           return row->result.bytes_sent == row->result.bytes_expected;
         }),
         count([](const VerifyRow* row) {
           return row->result.state_held == row->result.state_expected;
         }),
         passed ? "equal" : "WRONG"});
  }
  return table.text();
}

std::string broken_text(const VerifyRow& row) {
  const ParityResult& r = row.result;
  std::string text =
      fmt::format("\n{} on {} in {}, accumulation {}, recomputation {}, offload {}:\n",
                  row.strategy, to_string(row.layout), name_of(row.precision), row.accumulation,
                  to_string(row.recomputation), offload_text(row));
  if (r.bytes_sent != r.bytes_expected) {
    text += fmt::format("  sent {}, theory says {}\n", to_string(r.bytes_sent),
                        to_string(r.bytes_expected));
  }
  if (r.state_held != r.state_expected) {
    text += fmt::format("  parameters, gradients and optimizer hold {}, theory says {}\n",
                        to_string(r.state_held), to_string(r.state_expected));
  }
  if (row.must_equal_ddp && row.equals_ddp != true) {
    text += "  not the bits of ddp, although contributions are added in the order of the ranks\n";
  }
  if (r.broken.empty()) {
    return text;
  }
  Table table({{"wrong, worst first"},
               {"step", Align::right},
               {"rank", Align::right},
               {"relative error", Align::right},
               {"ratio to the control", Align::right}});
  for (std::size_t i = 0; i < std::min(r.broken.size(), differences_shown); ++i) {
    const Difference& d = r.broken[i];
    table.add_row({d.what, fmt::format("{}", d.step), fmt::format("{}", d.rank),
                   error_text(d.relative_error), fmt::format("{:.6g}", d.ratio)});
  }
  text += table.text();
  if (r.broken.size() > differences_shown) {
    text += fmt::format("and {} more\n", r.broken.size() - differences_shown);
  }
  return text;
}

nlohmann::ordered_json json_of(const VerifyRow& row) {
  const ParityResult& r = row.result;
  nlohmann::ordered_json json = {{"strategy", row.strategy},
                                 {"layout", to_string(row.layout)},
                                 {"precision", name_of(row.precision)},
                                 {"optimizer", name_of(row.optimizer)},
                                 {"accumulation", row.accumulation},
                                 {"checkpoint_activations", to_string(row.recomputation)},
                                 {"offload", name_of(row.offload)},
                                 {"offload_to", name_of(row.offload_to)},
                                 {"passed", row.passed()},
                                 {"bound", row.bound},
                                 {"largest", json_of(r.largest)},
                                 {"bit_equal", r.bit_equal},
                                 {"steps_compared", r.steps_compared},
                                 {"tensors", r.tensors},
                                 {"bytes_sent", r.bytes_sent.value},
                                 {"bytes_expected", r.bytes_expected.value},
                                 {"state_bytes", r.state_held.value},
                                 {"state_bytes_expected", r.state_expected.value},
                                 {"broken", nlohmann::ordered_json::array()}};
  if (row.equals_ddp) {
    json["equals_ddp"] = *row.equals_ddp;
  }
  for (const Difference& d : r.broken) {
    json["broken"].push_back(json_of(d));
  }
  return json;
}

}  // namespace ringworld
