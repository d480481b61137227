#include "cli/plan_verify.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/dry_run.h"
#include "cli/rank.h"
#include "cli/train_setup.h"
#include "planner/runtime_model.h"
#include "runtime/error.h"
#include "training/trainer.h"

namespace ringworld {
namespace {

constexpr double tolerance = 0.02;  // of what is not a state

// Two real steps take seconds up to here, on all ranks together.
constexpr double most_flops = 1e12;
constexpr Bytes most_memory{std::int64_t{4} << 30};

bool is_state(Category category) {
  return category == Category::parameters || category == Category::gradients ||
         category == Category::optimizer;
}

std::vector<Verified> compare(const RuntimeMemory& planned, const Ledger& device,
                              const std::optional<Ledger>& host,
                              const std::optional<Ledger>& file) {
  std::vector<Verified> items;
  for (std::size_t c = 0; c < category_count; ++c) {
    const auto category = static_cast<Category>(c);
    if (planned.device.peak[c].value > 0 || device.peak[c].value > 0) {
      items.push_back({std::string(name_of(category)), planned.device.peak[c], device.peak[c],
                       is_state(category)});
    }
  }
  items.push_back({"all at once", planned.device.total_peak, device.total_peak, false});
  const auto add_tier = [&](std::string_view tier, const Ledger& plan,
                            const std::optional<Ledger>& ledger, bool exact) {
    for (const Category category : {Category::parameters, Category::optimizer}) {
      if (ledger && plan.held_in(category).value > 0) {
        items.push_back({fmt::format("{}, {}", name_of(category), tier), plan.held_in(category),
                         ledger->peak_in(category), exact});
      }
    }
  };
  add_tier("host", planned.host, host, true);
  add_tier("file", planned.file, file, false);  // blocks of whole pages
  return items;
}

// `planned` is of every stage.
bool is_small(const Transformer& model, const Layout& layout,
              const std::vector<RuntimeMemory>& planned) {
  const double tokens = 2.0 * static_cast<double>(layout.micro_batch * layout.micro_batches() *
                                                  layout.data * layout.sequence_length);
  Bytes pipeline;  // one rank of each stage
  for (const RuntimeMemory& stage : planned) {
    pipeline += stage.device.total_peak + stage.host.total_held;
  }
  return 6.0 * static_cast<double>(count_parameters(model).total()) * tokens <= most_flops &&
         layout.data * layout.tensor * pipeline <= most_memory;
}

// On every rank of the job; rank 0's ledgers are what is compared, other ranks have none.
std::vector<Verified> run_two_steps(const TrainOptions& o, const RuntimeMemory& planned,
                                    Transport& transport) {
  const BatchPlan batches = check_training(o, transport.world_size());
  Rank rank(o.resources, transport);
  TrainingState state(o, rank.backend(), rank.communicator(),
                      [&](std::shared_ptr<Device> device) { return rank.make_backend(device); });
  const Datasets data = given_or_synthetic_data(o, state.model().vocabulary());
  TrainerOptions options = trainer_options(o, batches);
  options.validation_interval = 0;
  Trainer trainer(state.model(), rank.backend(), state.strategy(), state.optimizer(), *state.mesh(),
                  state.stage(), data, options);
  trainer.step();
  const Ledger device = trainer.step().ledger;
  if (transport.rank() != 0) {
    return {};
  }
  const auto ledger_of = [](const auto* tier) {
    return tier == nullptr ? std::optional<Ledger>() : tier->ledger();
  };
  return compare(planned, device, ledger_of(state.host()), ledger_of(state.file()));
}

}  // namespace

bool Verified::holds() const {
  const auto difference = static_cast<double>(std::abs(planned.value - measured.value));
  return exact ? planned == measured
               : difference <= tolerance * static_cast<double>(measured.value);
}

bool PlanVerification::holds() const {
  return std::ranges::all_of(items, &Verified::holds);
}

TrainOptions training_of(const Transformer& m, const Layout& l, const RuntimeOptions& options) {
  if (const std::string why = runtime_refusal(m, l); !why.empty()) {
    throw UsageError(why);
  }
  TrainOptions o;
  o.model = runtime_model(m, l);
  o.recomputation = {.checkpoint = l.recompute == Recompute::full ? 1 : 0,
                     .attention = l.recompute == Recompute::selective};
  o.precision = l.precision;
  const ParallelOptions parallel = runtime_parallel(l);
  if (parallel.mesh.model_ranks() > 1) {
    o.mesh = parallel.mesh;
  }
  o.sequence_parallel = parallel.sequence_parallel;
  o.pipeline = parallel.pipeline;
  o.strategy.name = parallel.strategy.name;
  o.micro_batch = l.micro_batch;
  o.global_batch = l.micro_batch * l.micro_batches() * l.data;
  o.data.sequence_length = l.sequence_length;
  constexpr Offload offloads[] = {Offload::none, Offload::optimizer, Offload::master,
                                  Offload::parameters};
  o.offload.what = offloads[static_cast<std::size_t>(l.offload)];
  o.offload.where = l.offload_to_file ? OffloadTo::file : OffloadTo::host;
  if (l.offload_to_file) {
    o.offload.path = std::string(1, '.');
  }
  // SGD without momentum keeps no state.
  o.optimizer.kind = options.optimizer_states == 2 ? OptimizerKind::adamw : OptimizerKind::sgd;
  o.optimizer.momentum = options.optimizer_states == 0 ? 0 : o.optimizer.momentum;
  o.resources.threads = options.threads;
  return o;
}

std::string command_of(const Transformer& m, const Layout& l, const RuntimeOptions& options) {
  const TrainOptions o = training_of(m, l, options);
  std::string command =
      fmt::format("mpiexec -n {} ringworld train --data FILE --model {} --layers {} --heads {}",
                  l.gpus(), o.model.name, m.layers, m.heads);
  if (o.model.kv_heads > 0) {
    command += fmt::format(" --kv-heads {}", m.kv_heads);
  }
  command += fmt::format(
      " --width {} --hidden {} --vocabulary {} --context {} --precision {} --strategy {}"
      " --micro-batch {} --global-batch {} --sequence-length {}",
      m.width, m.hidden, m.vocabulary, o.model.context, name_of(l.precision), o.strategy.name,
      o.micro_batch, o.global_batch, l.sequence_length);
  if (o.mesh) {
    command += fmt::format(" --mesh {}", to_string(*o.mesh));
  }
  if (l.sequence_parallel) {
    command += " --sequence-parallel";
  }
  if (l.pipeline > 1) {
    command += fmt::format(" --pipeline-schedule {}", l.schedule);
    command += l.chunks > 1 ? fmt::format(" --chunks {}", l.chunks) : "";
    command +=
        l.stage_layers.empty() ? "" : fmt::format(" --stages {}", fmt::join(l.stage_layers, ","));
  }
  if (options.optimizer_states < 2) {
    command += fmt::format(" --optimizer sgd --momentum {}", o.optimizer.momentum);
  }
  if (l.recompute != Recompute::none) {
    command += fmt::format(" --checkpoint-activations {}", to_string(o.recomputation));
  }
  if (l.offload != PlannedOffload::none) {
    command += fmt::format(" --offload {} --offload-to {}", name_of(l.offload),
                           l.offload_to_file ? "file --offload-path DIR" : "host");
  }
  return command;
}

std::vector<PlanVerification> verify_memory(const Transformer& m, const Layout& l,
                                            const RuntimeOptions& options, Transport& transport) {
  const TrainOptions o = training_of(m, l, options);
  const auto ranks = static_cast<int>(l.gpus());
  std::vector<PlanVerification> all;
  std::vector<RuntimeMemory> planned;
  RuntimeOptions of_stage = options;
  for (int stage = 0; stage < l.pipeline; ++stage) {
    of_stage.stage = stage;
    planned.push_back(plan_runtime_memory(m, l, of_stage));
    const int rank = stage * static_cast<int>(l.tensor);  // the first of the stage
    const DryRun dry = dry_run(o, rank, ranks);
    all.push_back({fmt::format("dry run of rank {} of {}{}", rank, ranks,
                               l.pipeline == 1 ? "" : fmt::format(", stage {}", stage)),
                   compare(planned.back(), dry.device, dry.host, dry.file)});
  }
  if (transport.world_size() == ranks && is_small(m, l, planned)) {
    all.push_back({fmt::format("two real steps of {} rank{}{}", ranks, ranks == 1 ? "" : "s",
                               l.pipeline == 1 ? "" : ", on rank 0"),
                   run_two_steps(o, planned.front(), transport),
                   /*real=*/true});
  }
  return all;
}

}  // namespace ringworld
