// ringworld compare: two dumps of a step, tensor by tensor; which is the first that differs?
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "training/dump_comparison.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t differences_shown = 10;

std::string error_text(double error) {
  return error == 0 ? "0" : fmt::format("{:.1e}", error);
}

std::string ratio_text(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.6g}", ratio) : "-";
}

// "0 to 3, 7"; "-" for none.
template <typename Integer>
std::string ranges_text(const std::vector<Integer>& numbers) {
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) {
      ++end;
    }
    ranges.push_back(end - i == 1 ? fmt::format("{}", numbers[i])
                                  : fmt::format("{} to {}", numbers[i], numbers[end - 1]));
    i = end;
  }
  return ranges.empty() ? "-" : fmt::format("{}", fmt::join(ranges, ", "));
}

std::string side_text(const char* side, const Dump& dump) {
  const DumpIndex& index = dump.front();
  return fmt::format("{}: {}: {}, {} rank{}, {}\n", side, dump.directory(), index.strategy,
                     index.world_size, index.world_size == 1 ? "" : "s", name_of(index.precision));
}

std::string table_of(const DumpComparison& comparison) {
  std::vector<const TensorDifference*> worst;
  for (const TensorDifference& tensor : comparison.tensors) {
    worst.push_back(&tensor);
  }
  std::ranges::stable_sort(worst, std::ranges::greater{}, &TensorDifference::relative_error);
  Table table({{"tensor, worst first"},
               {"relative error", Align::right},
               {"ratio to B", Align::right},
               {"sequences"},
               {"ranks of A"},
               {"ranks of B"},
               {"verdict"}});
  for (std::size_t i = 0; i < std::min(worst.size(), differences_shown); ++i) {
    const TensorDifference& t = *worst[i];
    table.add_row({describe(t.kind, t.name), error_text(t.relative_error), ratio_text(t.ratio),
                   ranges_text(t.sequences), ranges_text(t.ranks_a), ranges_text(t.ranks_b),
                   comparison.holds(t) ? "equal" : "WRONG"});
  }
  std::string text = table.text();
  if (worst.size() > differences_shown) {
    const auto wrong =
        std::count_if(worst.begin() + differences_shown, worst.end(),
                      [&](const TensorDifference* t) { return !comparison.holds(*t); });
    text += fmt::format("and {} more, {} of them wrong\n", worst.size() - differences_shown, wrong);
  }
  return text;
}

// Tensors that lack the same sequences are one line.
std::string lonely_text(const char* side, const std::vector<LonelyTensor>& tensors) {
  std::map<std::string, std::vector<std::string>> by_sequences;
  for (const LonelyTensor& tensor : tensors) {
    by_sequences[tensor.sequences.empty()
                     ? ""
                     : fmt::format("sequences {} of ", ranges_text(tensor.sequences))]
        .push_back(describe(tensor.kind, tensor.name));
  }
  std::string text;
  for (const auto& [sequences, names] : by_sequences) {
    text += fmt::format("only in {}: {}{}", side, sequences, names.front());
    text += names.size() == 1 ? "\n" : fmt::format(" and {} more tensors\n", names.size() - 1);
  }
  return text;
}

std::string verdict_text(const DumpComparison& comparison) {
  const TensorDifference* first = comparison.first_different();
  if (first == nullptr) {
    return comparison.equal()
               ? fmt::format("equal: every tensor up to {}\n", error_text(comparison.bound))
               : fmt::format("what both have is equal up to {}, but they do not have the same\n",
                             error_text(comparison.bound));
  }
  std::string text = fmt::format(
      "first difference, in the order of execution: {}: relative error "
      "{}, ratio to B {};\n",
      describe(first->kind, first->name), error_text(first->relative_error),
      ratio_text(first->ratio));
  const auto ranks = [](const std::vector<int>& numbers) {
    return fmt::format("rank{} {}", numbers.size() == 1 ? "" : "s", ranges_text(numbers));
  };
  text += fmt::format("held by {} of A and {} of B", ranks(first->ranks_a), ranks(first->ranks_b));
  if (!first->sequences.empty()) {
    text += fmt::format(", sequence{} {}, worst in {}", first->sequences.size() == 1 ? "" : "s",
                        ranges_text(first->sequences), first->sequence);
  }
  text += "\n";
  if (first->kind == DumpKind::parameter) {
    text +=
        "(gradients are equal: the optimizer differs; or it is AdamW, which makes whole updates "
        "out "
        "of the\nrounding noise where a gradient is zero in theory: then compare in f64 or with "
        "SGD)\n";
  }
  return text;
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json json_of(const TensorDifference& t, bool holds) {
  return {{"kind", name_of(t.kind)},
          {"name", t.name},
          {"relative_error", number(t.relative_error)},
          {"ratio", number(t.ratio)},
          {"bit_equal", t.bit_equal},
          {"equal", holds},
          {"worst_sequence", t.sequence >= 0 ? Json(t.sequence) : Json()},
          {"sequences", t.sequences},
          {"ranks_a", t.ranks_a},
          {"ranks_b", t.ranks_b}};
}

Json json_of(const std::vector<LonelyTensor>& tensors) {
  Json json = Json::array();
  for (const LonelyTensor& t : tensors) {
    json.push_back({{"kind", name_of(t.kind)}, {"name", t.name}, {"sequences", t.sequences}});
  }
  return json;
}

Json json_of(const Dump& dump) {
  const DumpIndex& index = dump.front();
  return {{"directory", dump.directory()},
          {"strategy", index.strategy},
          {"world_size", index.world_size},
          {"precision", name_of(index.precision)},
          {"loss_scale", index.loss_scale}};
}

Json json_of(const Dump& a, const Dump& b, const DumpComparison& comparison) {
  const TensorDifference* first = comparison.first_different();
  Json json = {{"schema", "ringworld.compare"},
               {"version", 1},
               {"model", a.front().model},
               {"step", a.front().step},
               {"a", json_of(a)},
               {"b", json_of(b)},
               {"bound", comparison.bound},
               {"equal", comparison.equal()},
               {"first_different", first == nullptr ? Json() : json_of(*first, false)},
               {"tensors", Json::array()},
               {"only_in_a", json_of(comparison.only_in_a)},
               {"only_in_b", json_of(comparison.only_in_b)}};
  for (const TensorDifference& tensor : comparison.tensors) {
    json["tensors"].push_back(json_of(tensor, comparison.holds(tensor)));
  }
  return json;
}

}  // namespace

ExitCode run_compare(const CompareOptions& o, Transport& transport) {
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  check_writable("--json", o.json);
  const Dump a(o.paths[0]);
  const Dump b(o.paths[1]);
  const DumpComparison comparison = compare_dumps(a, b, o.bound.value_or(default_dump_bound(a, b)));
  if (o.json != "-") {
    std::cout << fmt::format("{}, step {}\n", a.front().model, a.front().step) << side_text("A", a)
              << side_text("B", b) << "\n"
              << table_of(comparison) << "\n"
              << lonely_text("A", comparison.only_in_a) << lonely_text("B", comparison.only_in_b)
              << verdict_text(comparison) << std::flush;
  }
  if (!o.json.empty()) {
    write_json(o.json, json_of(a, b, comparison));
  }
  return comparison.equal() ? ExitCode::ok : ExitCode::failed;
}

}  // namespace ringworld
