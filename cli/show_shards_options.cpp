#include "cli/show_shards_options.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "cli/training_groups.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

constexpr int usual_world = 4;
// Every rank of the world is built.
constexpr int most_ranks = 512;
// Each has a column.
constexpr int most_ranks_on_a_page = 64;

void check_tensor(const ShowShardsOptions& o) {
  std::vector<std::string> names;
  const std::unique_ptr<Model> model = make_model(o.model, o.precision);
  for (const auto& parameter : model->parameters()) {
    names.push_back(parameter->name);
  }
  if (!o.tensor.empty() && std::ranges::find(names, o.tensor) == names.end()) {
    throw UsageError(
        fmt::format("--tensor: '{}': {} has no such tensor; did you mean {}? Without the option "
                    "all are shown",
                    o.tensor, o.model.name, nearest(o.tensor, names)));
  }
}

}  // namespace

void declare(OptionSet& set, ShowShardsOptions& o) {
  set.usage("ringworld show shards");
  declare_model(set, o.model);

  set.group("Strategy");
  set.custom("world", "RANKS", fmt::format("those of --mesh; {} without", usual_world),
             "Ranks that the model is distributed over.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.world =
                   static_cast<int>(set.parse_integer("world", values.front(), 1, most_ranks));
             });
  set.choice("strategy", o.strategy.name, strategy_names(),
             "How training is distributed over ranks.");
  declare_sharding(set, o.strategy);
  declare_parallel(set, o);

  set.group("State");
  set.custom("precision", "f32|f64|bf16|f16", std::string(name_of(o.precision)),
             "Number format of parameters; with bf16 and f16, gradients and the optimizer's state "
             "are f32, and a master copy is part of that.",
             false, [&set, &o](const std::vector<std::string>& values) {
               o.precision = parse_precision(set, values.front());
             });
  set.choice("optimizer", o.optimizer.kind, all_optimizer_kinds, "Whose state there is.");

  set.group("Output");
  set.text("tensor", o.tensor, "NAME", "Show this tensor alone, with every rank's slice.");
  set.text("html", o.html, "FILE.html", "Draw every tensor's slices, a column for each rank.");
  set.text("json", o.json, "FILE.json",
           "Write every slice of every tensor to this file; - is standard output, instead of the "
           "text.");
  set.examples(
      "Nothing is computed, and nothing allocated: every rank's part is built as for a dry run.\n\n"
      "Examples:\n"
      "  ringworld show shards --model gpt2-tiny --world 4 --strategy fsdp\n"
      "  ringworld show shards --strategy zero1 --mesh dp=2,pp=1,tp=2 --html shards.html\n"
      "  ringworld show shards --strategy fsdp --tensor h.0.attn.c_attn.weight\n"
      "  ringworld show shards --model gpt2 --precision bf16 --world 8 --strategy zero2 --json -");
}

void check(ShowShardsOptions& o) {
  if (o.world == 0) {
    o.world = o.mesh ? o.mesh->ranks() : usual_world;
  }
  if (o.mesh) {
    check_mesh(*o.mesh, o.world);
  }
  if (o.world > most_ranks) {
    throw UsageError(fmt::format(
        "--mesh: {} are {} ranks, at most {} can be shown; a smaller world is divided alike",
        to_string(*o.mesh), o.world, most_ranks));
  }
  if (!o.html.empty() && o.world > most_ranks_on_a_page) {
    throw UsageError(
        fmt::format("--html: {} ranks are too many columns, at most {} are drawn; --json has all",
                    o.world, most_ranks_on_a_page));
  }
  if (o.html == "-" && o.json == "-") {
    throw UsageError("--html and --json cannot both be standard output; name a file for one");
  }
  check_tensor(o);
  if (const std::string why = refusal(o, o.world); !why.empty()) {
    throw UsageError(why);
  }
}

}  // namespace ringworld
