// ringworld capabilities: which algorithm serves which number format and reduction, and which
// strategy of training goes with which option.
#include "collectives/capabilities.h"

#include <algorithm>
#include <functional>
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

// --- Training ------------------------------------------------------------------------------------

// What a strategy may be combined with, each in the words of the command line.
struct TrainingOption {
  std::string text;
  std::function<void(TrainingSetup&)> apply;
};

std::vector<TrainingOption> training_options() {
  std::vector<TrainingOption> options;
  for (const DType precision : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    options.push_back({fmt::format("--precision {}", name_of(precision)),
                       [precision](TrainingSetup& setup) { setup.precision = precision; }});
  }
  options.push_back({"--checkpoint-activations K", [](TrainingSetup&) {}});
  options.push_back({"--checkpoint-activations selective",
                     [](TrainingSetup& setup) { setup.model.recompute_attention = true; }});
  for (const ReduceGradients when : {ReduceGradients::once, ReduceGradients::every_micro_batch}) {
    options.push_back({fmt::format("--reduce-gradients {}", name_of(when)),
                       [when](TrainingSetup& setup) { setup.strategy.reduce_gradients = when; }});
  }
  options.push_back({"--reshard-after-forward false",
                     [](TrainingSetup& setup) { setup.strategy.reshard_after_forward = false; }});
  options.push_back(
      {"--shard-group S", [](TrainingSetup& setup) { setup.strategy.shard_group = 2; }});
  for (const Offload what : {Offload::optimizer, Offload::master, Offload::parameters}) {
    for (const OffloadTo where : all_offload_targets) {
      options.push_back({fmt::format("--offload {} --offload-to {}", name_of(what), name_of(where)),
                         [what, where](TrainingSetup& setup) {
                           setup.offload.what = what;
                           setup.offload.where = where;
                           if (where == OffloadTo::file) {
                             setup.offload.path.assign(1, '.');
                           }
                         }});
    }
  }
  const auto model_parallel = [&](const std::string& text, const MeshShape& mesh,
                                  bool sequence_parallel, const std::string& schedule) {
    options.push_back({text, [=](TrainingSetup& setup) {
                         setup.mesh = mesh;
                         setup.sequence_parallel = sequence_parallel;
                         setup.pipeline.schedule = schedule;
                       }});
  };
  const PipelineOptions usual;
  model_parallel("--mesh dp=N,tp=N", {.data = 2, .tensor = 2}, false, usual.schedule);
  model_parallel("--mesh dp=N,tp=N --sequence-parallel", {.data = 2, .tensor = 2}, true,
                 usual.schedule);
  for (const std::string& schedule : pipeline_names()) {
    model_parallel(fmt::format("--mesh dp=N,pp=N --pipeline-schedule {}", schedule),
                   {.data = 2, .pipeline = 2}, false, schedule);
  }
  return options;
}

// On a world that every shard group divides.
std::string refusal_of(const TrainingOption& option, const std::string& strategy) {
  TrainingSetup setup;
  setup.strategy.name = strategy;
  option.apply(setup);
  return refusal(setup, /*world_size=*/4);
}

std::string training_table(Notes& notes) {
  std::vector<Table::Column> columns = {{"train, verify with"}};
  for (const std::string& strategy : strategy_names()) {
    columns.push_back({strategy});
  }
  Table table(std::move(columns));
  for (const TrainingOption& option : training_options()) {
    std::vector<std::string> row = {option.text};
    for (const std::string& strategy : strategy_names()) {
      const std::string reason = refusal_of(option, strategy);
      row.push_back(reason.empty() ? "yes" : fmt::format("no [{}]", notes.number(reason)));
    }
    table.add_row(std::move(row));
  }
  return table.text();
}

Json training_cells() {
  Json json = Json::array();
  for (const TrainingOption& option : training_options()) {
    for (const std::string& strategy : strategy_names()) {
      const std::string reason = refusal_of(option, strategy);
      json.push_back({{"strategy", strategy},
                      {"option", option.text},
                      {"supported", reason.empty()},
                      {"reason", reason.empty() ? Json() : Json(reason)}});
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
    const std::string training = training_table(notes);
    std::cout << table.text()
              << "\nyes: with every reduction (sum, avg, min, max), where the operation reduces\n\n"
              << training
              << "\nyes: alone and with every other option that is yes for the strategy\n"
              << notes.text() << std::flush;
  }
  if (!o.json.empty()) {
    write_json(o.json, {{"schema", "ringworld.capabilities"},
                        {"version", 1},
                        {"cells", cells()},
                        {"training", training_cells()}});
  }
  return ExitCode::ok;
}

}  // namespace ringworld
