// What ringworld verify can be told.
#include <algorithm>

#include <CLI/StringTools.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/option_groups.h"
#include "cli/parallel_options.h"
#include "cli/training_groups.h"
#include "cli/training_options.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

// Several of the known ones, each with name_of.
template <typename T, typename Known>
void declare_list(OptionSet& set, const std::string& name, std::vector<T>& list, const Known& known,
                  const std::string& default_text, const std::string& sentence) {
  std::vector<std::string> names;
  for (const T& one : known) {
    names.emplace_back(name_of(one));
  }
  set.custom(name, fmt::format("{}...", fmt::join(names, "|")), default_text, sentence, true,
             [&set, &list, name, names, known](const std::vector<std::string>& values) {
               list.clear();
               for (const std::string& text : split_list(values)) {
                 const auto found = std::ranges::find(names, text);
                 if (found == names.end()) {
                   set.refuse_unknown(name, text, names);
                 }
                 list.push_back(*(std::begin(known) + (found - names.begin())));
               }
             });
}

// "tensor=NAME,factor=2,rank=1": the tensor is needed, the others have defaults.
Plant parse_plant(const OptionSet& set, const std::string& text) {
  const std::vector<std::string> known = {"tensor", "factor", "rank"};
  Plant plant;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      set.refuse_unknown("plant", key, known);
    }
    if (equals == std::string::npos || equals + 1 == part.size()) {
      set.refuse("plant", text, fmt::format("{} has no value; write {}=...", key, key));
    }
    const std::string value = part.substr(equals + 1);
    if (key == "tensor") {
      plant.tensor = value;
    } else if (key == "factor") {
      plant.factor = set.parse_number("plant", value, {-infinity, infinity, false, false});
    } else {
      plant.rank = set.parse_integer("plant", value, 0);
    }
  }
  if (plant.tensor.empty()) {
    set.refuse("plant", text, "names no tensor; write tensor=NAME,factor=2,rank=1");
  }
  return plant;
}

}  // namespace

void declare(OptionSet& set, VerifyOptions& o) {
  declare_model(set, o.model);

  set.group("Data");
  set.texts(
      "data", o.data, "PATH",
      "Files or directories to train on, as for train; synthetic tokens where none is given.");
  set.integer("sequence-length", o.sequence_length, 1, "TOKENS", "Length of each sequence.");

  set.group("Strategy");
  set.custom("strategy", "NAME...", "ddp",
             fmt::format("How training is distributed; several are verified one after the other. "
                         "all is every strategy with everything that it can be combined with, "
                         "unless that is given. Known: all, {}.",
                         fmt::join(strategy_names(), ", ")),
             true, [&set, &o](const std::vector<std::string>& values) {
               o.strategies.clear();
               std::vector<std::string> known = strategy_names();
               known.emplace_back("all");
               for (const std::string& text : split_list(values)) {
                 if (std::ranges::find(known, text) == known.end()) {
                   set.refuse_unknown("strategy", text, known);
                 }
                 o.strategies.push_back(text);
               }
             });
  declare_strategy(set, o.strategy, o.resources);
  declare_parallel(set, o.layouts);

  set.group("Memory");
  set.custom("checkpoint-activations", "none|selective|K...", "none",
             "Which activations are computed again in backward; several are verified.", true,
             [&set, &o](const std::vector<std::string>& values) {
               o.recomputations.clear();
               for (const std::string& text : split_list(values)) {
                 o.recomputations.push_back(parse_recomputation(set, text));
               }
             });
  declare_list(set, "offload", o.offloads, all_offloads, "none",
               "What leaves the device; several are verified.");
  declare_list(set, "offload-to", o.offload_targets, all_offload_targets, "host",
               "Where it goes; both may be verified.");
  declare_offload(set, o.offload);

  set.group("Training");
  set.integer("steps", o.steps, 1, "N", "Optimizer steps that are compared.");
  set.integer("micro-batch", o.micro_batch, 1, "N", "Sequences that a rank works on at once.");
  set.custom("accumulation", "N...", "1 3",
             "Micro-batches per rank and optimizer step; several are verified one after the other.",
             true, [&set, &o](const std::vector<std::string>& values) {
               o.accumulation.clear();
               for (const std::string& text : split_list(values)) {
                 o.accumulation.push_back(set.parse_integer("accumulation", text, 1));
               }
             });
  set.integer("global-batch", o.global_batch, 0, "N",
              "Sequences per optimizer step over all ranks, instead of --accumulation; 0 is off.");
  set.custom("precision", "f32|f64|bf16|f16...", "f64 f32",
             "Number formats; several are verified one after the other.", true,
             [&set, &o](const std::vector<std::string>& values) {
               o.precisions.clear();
               for (const std::string& text : split_list(values)) {
                 o.precisions.push_back(parse_precision(set, text));
               }
             });
  set.number("learning-rate", o.learning_rate, positive, "X", "Learning rate, constant.");
  set.choice(
      "optimizer", o.optimizer.kind, all_optimizer_kinds,
      "How parameters follow their gradients. AdamW makes whole updates out of rounding noise "
      "where a gradient is zero in theory, so that it needs f64.");
  declare_optimizer_numbers(set, o.optimizer, o.clip_norm);
  declare_seed(set, o.seed);

  set.group("Output");
  set.text("json", o.json, "FILE.json", "Write the table to this file, too.");
  set.custom("plant", "tensor=NAME,factor=X,rank=R", "",
             "Multiply one gradient on one rank, to see that the table names it.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.plant = parse_plant(set, values.front());
             });

  declare_resources(set, o.resources);
  set.examples(
      "Examples:\n"
      "  mpiexec -n 4 ringworld verify\n"
      "  mpiexec -n 4 ringworld verify --strategy all --reproducible\n"
      "  mpiexec -n 3 ringworld verify --accumulation 3 --precision f64 --json table.json\n"
      "  mpiexec -n 2 ringworld verify --plant tensor=h.0.mlp.c_fc.weight,factor=2,rank=1");
}

void check(VerifyOptions& o) {
  if (o.global_batch > 0 && !o.accumulation.empty()) {
    throw UsageError(fmt::format(
        "--global-batch {} and --accumulation {} both say how much is accumulated; give one",
        o.global_batch, fmt::join(o.accumulation, " ")));
  }
  if (o.global_batch == 0 && o.accumulation.empty()) {
    o.accumulation = {1, 3};
  }
  const bool all = std::ranges::find(o.strategies, "all") != o.strategies.end();
  if (all) {
    o.strategies = {"ddp", "zero1", "zero2", "fsdp"};
  }
  const auto by_default = [](auto& list, auto otherwise) {
    if (list.empty()) {
      list = otherwise;
    }
  };
  by_default(o.strategies, std::vector<std::string>{"ddp"});
  const bool every_mesh = o.layouts.every_mesh;
  by_default(o.layouts.schedules,
             every_mesh ? pipeline_names() : std::vector<std::string>{PipelineOptions().schedule});
  by_default(o.layouts.sequence_parallel,
             every_mesh ? std::vector<bool>{false, true} : std::vector<bool>{false});
  using Precisions = std::vector<DType>;
  by_default(o.precisions, all ? Precisions{DType::f64, DType::f32, DType::bf16, DType::f16}
                               : Precisions{DType::f64, DType::f32});
  using Recomputations = std::vector<Recomputation>;
  by_default(o.recomputations,
             all ? Recomputations{{}, {.checkpoint = 1}, {.attention = true}} : Recomputations{{}});
  using Offloads = std::vector<Offload>;
  by_default(o.offloads, all ? Offloads(std::begin(all_offloads), std::end(all_offloads))
                             : Offloads{Offload::none});
  using Targets = std::vector<OffloadTo>;
  by_default(o.offload_targets,
             all ? Targets{OffloadTo::host, OffloadTo::file} : Targets{OffloadTo::host});
}

}  // namespace ringworld
