// ringworld plan search: which layouts fit so many GPUs, the best first, and why the others are not
// there.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/help_formatter.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "cli/plan_machine.h"
#include "cli/plan_setup.h"
#include "cli/plan_small.h"
#include "cli/plan_time_text.h"
#include "planner/cost.h"
#include "planner/search.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t usual_batch_tokens = std::int64_t{4} << 20;
constexpr std::int64_t usual_longest = 4096;

struct OfGpus {
  std::int64_t gpus;
  SearchResult result;
};

struct PlannedSearch {
  Transformer model;
  SettledMachine machine;
  std::vector<Stated> stated = {};
  SearchQuestion question = {};  // but for the number of GPUs
  double tokens = 0;             // to train on; 0: not said
  double price = 0;              // 0: unknown
  std::vector<OfGpus> searched = {};
  double seconds = 0;  // that the search took
};

void settle_question(const PlanSearchOptions& o, const std::optional<DType>& of_model,
                     PlannedSearch& p) {
  SearchQuestion& q = p.question;
  q.sequence_length = o.layout.sequence_length > 0 ? o.layout.sequence_length
                                                   : std::min(p.model.context, usual_longest);
  p.stated.push_back({"sequence length", fmt::format("{}", q.sequence_length),
                      o.layout.sequence_length > 0
                          ? "--sequence-length"
                          : "default: the context, at most 4096; --sequence-length"});
  if (p.model.learned_positions && q.sequence_length > p.model.context) {
    throw UsageError(fmt::format("--sequence-length: '{}': {} has positions for {}",
                                 q.sequence_length, p.model.name, p.model.context));
  }
  q.global_batch = o.layout.global_batch > 0
                       ? o.layout.global_batch
                       : std::max<std::int64_t>(1, usual_batch_tokens / q.sequence_length);
  p.stated.push_back(
      {"global batch", fmt::format("{}", q.global_batch),
       o.layout.global_batch > 0 ? "--global-batch" : "default: 4M tokens; --global-batch"});
  q.precision = o.precision.value_or(of_model.value_or(DType::bf16));
  p.stated.push_back({"precision", std::string(name_of(q.precision)),
                      o.precision ? "--dtype"
                      : of_model  ? "the model's file"
                                  : "default; --dtype"});
  q.gradient_precision = o.gradient_precision.value_or(gradient_dtype(q.precision));
  p.stated.push_back({"gradients in", std::string(name_of(q.gradient_precision)),
                      o.gradient_precision ? "--gradient-dtype" : "default; --gradient-dtype"});
  q.software = p.machine.software;
  q.memory = o.memory;
  q.offload = !o.no_offload;
  q.keep = static_cast<std::size_t>(o.keep);
}

PlannedSearch searched(const PlanSearchOptions& o) {
  ModelAnswer model = answer(o.model);
  PlannedSearch p{.model = std::move(model.model),
                  .machine = settle_machine(o, o.program),
                  .stated = std::move(model.stated)};
  settle_question(o, model.precision, p);
  const Constant price = o.price ? Constant{*o.price, "--price"} : p.machine.machine.price;
  p.price = price.value;
  p.stated.push_back({"price", p.price > 0 ? fmt::format("${:.2f} an hour", p.price) : "unknown",
                      p.price > 0 ? price.source : "no dollars without one; --price, --hardware"});
  p.tokens = o.tokens.empty() ? 0 : static_cast<double>(parse_count(o.tokens, "--tokens"));
  const auto start = std::chrono::steady_clock::now();
  for (const std::int64_t gpus : o.gpu_counts) {
    p.question.gpus = gpus;
    p.searched.push_back({gpus, search_layouts(p.model, p.machine.machine, p.question)});
  }
  p.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Of a range, the best number of GPUs first.
  const auto cost = [&](const OfGpus& one) {
    const double gpus = o.order == SearchOrder::cost ? static_cast<double>(one.gpus) : 1;
    return one.result.best.empty() ? 1e300 : gpus * one.result.best.front().time.seconds;
  };
  std::ranges::stable_sort(p.searched, {}, cost);
  return p;
}

// For a billion tokens, or all of them: hours of all GPUs, GPU-hours and dollars.
Cost cost_of_found(const PlannedSearch& p, std::int64_t gpus, const Found& found) {
  return cost_of({.tokens = p.tokens > 0 ? p.tokens : 1e9,
                  .tokens_per_second = found.tokens_per_second,
                  .gpus = gpus,
                  .price = p.price},
                 EfficiencyCase::expected);
}

std::string cost_title(const PlannedSearch& p) {
  return fmt::format("{}{}", p.price > 0 ? "$" : "GPUh", p.tokens > 0 ? "" : "/1B");
}

std::string cost_text(const PlannedSearch& p, std::int64_t gpus, const Found& found) {
  const Cost cost = cost_of_found(p, gpus, found);
  return human_count(cost.dollars.value_or(cost.gpu_hours));
}

std::vector<Table::Column> columns(const PlannedSearch& p) {
  std::vector<Table::Column> list = {{"GPUs", Align::right},
                                     {"DP", Align::right},
                                     {"TP", Align::right},
                                     {"PP", Align::right},
                                     {"CP", Align::right},
                                     {"EP", Align::right},
                                     {"pipeline"},
                                     {"SP"},
                                     {"ZeRO"},
                                     {"b", Align::right},
                                     {"again"},
                                     {"offload"},
                                     {"GB", Align::right},
                                     {"step", Align::right},
                                     {"MFU", Align::right},
                                     {cost_title(p), Align::right}};
  if (!p.model.experts) {
    list.erase(list.begin() + 5);
  }
  if (p.tokens > 0) {
    list.push_back({"days", Align::right});
  }
  return list;
}

std::vector<std::string> row(const PlannedSearch& p, std::int64_t gpus, const Found& f) {
  const Layout& l = f.layout;
  constexpr std::string_view sharding[] = {"-", "1", "2", "3"};
  constexpr std::string_view again[] = {"-", "select", "full"};
  std::string pipeline = l.pipeline == 1 ? "-"
                         : l.chunks > 1  ? fmt::format("int {}", l.chunks)
                                         : l.schedule;
  std::string offload = "-";
  if (l.offload != PlannedOffload::none) {
    offload = fmt::format("{} {}", l.offload == PlannedOffload::parameters ? "all" : "opt",
                          l.offload_to_file ? "file" : "host");
  }
  std::vector<std::string> cells = {
      fmt::format("{}", gpus),
      fmt::format("{}", l.data),
      fmt::format("{}", l.tensor),
      fmt::format("{}", l.pipeline),
      fmt::format("{}", l.context),
      fmt::format("{}", l.expert),
      std::move(pipeline),
      l.sequence_parallel ? "yes" : "-",
      std::string(sharding[static_cast<std::size_t>(l.sharding)]),
      fmt::format("{}", l.micro_batch),
      std::string(again[static_cast<std::size_t>(l.recompute)]),
      std::move(offload),
      fmt::format("{:.1f}", static_cast<double>(f.memory.value) / 1e9),
      seconds_text(f.time.seconds),
      fmt::format("{:.1f}%", 100 * f.mfu),
      cost_text(p, gpus, f)};
  if (!p.model.experts) {
    cells.erase(cells.begin() + 5);
  }
  if (p.tokens > 0) {
    cells.push_back(fmt::format("{:.4g}", cost_of_found(p, gpus, f).days()));
  }
  return cells;
}

std::string rejected_text(const PlannedSearch& p, bool explain) {
  std::array<Rejected, rejection_count> sum;
  for (const OfGpus& one : p.searched) {
    for (std::size_t i = 0; i < rejection_count; ++i) {
      if (sum[i].count == 0) {
        sum[i].example = one.result.rejected[i].example;
      }
      sum[i].count += one.result.rejected[i].count;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < rejection_count; ++i) {
    if (sum[i].count > 0) {
      text += fmt::format("{:>10}  {}\n", sum[i].count, describe(static_cast<Rejection>(i)));
      if (explain) {
        text += fmt::format("{:>10}  {}\n", "", wrap(sum[i].example, 88, 12));
      }
    }
  }
  return text;
}

std::int64_t weighed(const PlannedSearch& p) {
  std::int64_t sum = 0;
  for (const OfGpus& one : p.searched) {
    sum += one.result.weighed;
  }
  return sum;
}

std::string text_of(const PlannedSearch& p, const PlanSearchOptions& o) {
  std::string text =
      fmt::format("Layouts of {} ({} parameters) on {}\n\n", p.model.name,
                  count_text(count_parameters(p.model).total()), p.machine.machine.name);
  text += stated_table(p.stated, p.machine.stated);
  Table table(columns(p));
  const Layout* best = nullptr;
  for (const OfGpus& one : p.searched) {
    // Of one number all that were asked for, of a range the best of each.
    const std::size_t shown = p.searched.size() == 1 ? one.result.best.size() : 1;
    for (std::size_t i = 0; i < std::min(shown, one.result.best.size()); ++i) {
      table.add_row(row(p, one.gpus, one.result.best[i]));
      best = best == nullptr ? &one.result.best[i].layout : best;
    }
  }
  std::int64_t fitting = 0;
  for (const OfGpus& one : p.searched) {
    fitting += one.result.fitting;
    if (one.result.best.empty()) {
      text += fmt::format("\n{} GPUs: nothing fits.\n", one.gpus);
    }
  }
  if (best != nullptr) {
    text += fmt::format("\n{}\n", table.text());
    text +=
        "b: micro-batch; again: recomputation; step, MFU: as planned; "
        "cost: 0.9 of the time is steps.\n\n";
  }
  text += fmt::format("{} layouts weighed in {}, {} fit; rejected:\n{}", weighed(p),
                      seconds_text(p.seconds), fitting, rejected_text(p, o.explain));
  if (best != nullptr) {
    text += fmt::format("\n{}", small_text(p.model, *best));
  }
  return text;
}

Json json_of(const PlannedSearch& p) {
  Json searched = Json::array();
  for (const OfGpus& one : p.searched) {
    Json best = Json::array();
    for (const Found& found : one.result.best) {
      const Cost cost = cost_of_found(p, one.gpus, found);
      best.push_back({{"layout", layout_json(found.layout)},
                      {"memory_bytes", found.memory.value},
                      {"step_seconds", found.time.seconds},
                      {"tokens_per_second", found.tokens_per_second},
                      {"mfu", found.mfu},
                      {"days", cost.days()},
                      {"gpu_hours", cost.gpu_hours},
                      {"dollars", cost.dollars ? Json(*cost.dollars) : Json()}});
    }
    Json rejected = Json::array();
    for (std::size_t i = 0; i < rejection_count; ++i) {
      rejected.push_back({{"reason", describe(static_cast<Rejection>(i))},
                          {"count", one.result.rejected[i].count},
                          {"example", one.result.rejected[i].example}});
    }
    searched.push_back({{"gpus", one.gpus},
                        {"weighed", one.result.weighed},
                        {"fitting", one.result.fitting},
                        {"best", std::move(best)},
                        {"rejected", std::move(rejected)}});
  }
  return {{"schema", "ringworld.plan_search"},
          {"version", 1},
          {"model", p.model.name},
          {"inputs", stated_json(p.stated)},
          {"machine", stated_json(p.machine.stated)},
          {"constants", stated_json(p.machine.constants)},
          {"cost_of_tokens", p.tokens > 0 ? p.tokens : 1e9},
          {"search_seconds", p.seconds},
          {"weighed", weighed(p)},
          {"searched", std::move(searched)}};
}

}  // namespace

ExitCode run_plan_search(const PlanSearchOptions& o, Transport& transport) {
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  check_writable("--json", o.json);
  const PlannedSearch plan = searched(o);
  if (o.json != "-") {
    std::cout << text_of(plan, o) << std::flush;
  }
  if (!o.json.empty()) {
    write_json(o.json, json_of(plan));
  }
  const bool any = std::ranges::any_of(plan.searched,
                                       [](const OfGpus& one) { return !one.result.best.empty(); });
  return any ? ExitCode::ok : ExitCode::failed;
}

}  // namespace ringworld
