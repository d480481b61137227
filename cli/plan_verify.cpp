#include "cli/plan_verify.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/dry_run.h"
#include "cli/rank.h"
#include "cli/train_setup.h"
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

bool is_small(const Transformer& model, const Layout& layout, const RuntimeMemory& planned) {
  const double tokens = 2.0 * static_cast<double>(layout.micro_batch * layout.micro_batches() *
                                                  layout.data * layout.sequence_length);
  return 6.0 * static_cast<double>(count_parameters(model).total()) * tokens <= most_flops &&
         layout.data * (planned.device.total_peak + planned.host.total_held) <= most_memory;
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
  Trainer trainer(state.model(), rank.backend(), state.strategy(), state.optimizer(),
                  rank.communicator(), data, options);
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

bool Verification::holds() const {
  return std::ranges::all_of(items, &Verified::holds);
}

TrainOptions training_of(const Transformer& m, const Layout& l, const RuntimeOptions& options) {
  if (const std::string why = runtime_refusal(m, l); !why.empty()) {
    throw UsageError(why);
  }
  TrainOptions o;
  o.model.name = "gpt2";
  o.model.layers = m.layers;
  o.model.heads = m.heads;
  o.model.width = m.width;
  o.model.hidden = m.hidden;
  o.model.vocabulary = m.vocabulary;
  o.model.context = m.context;
  o.model.recompute_attention = l.recompute == Recompute::selective;
  o.recomputation = {.checkpoint = l.recompute == Recompute::full ? 1 : 0,
                     .attention = l.recompute == Recompute::selective};
  o.precision = l.precision;
  o.strategy.name =
      std::string(l.sharding == Sharding::none ? std::string_view("ddp") : name_of(l.sharding));
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
  std::string command = fmt::format(
      "mpiexec -n {} ringworld train --data FILE --model gpt2 --layers {} --heads {} --width {} "
      "--hidden {} --vocabulary {} --context {} --precision {} --strategy {} --micro-batch {} "
      "--global-batch {} --sequence-length {}",
      l.data, m.layers, m.heads, m.width, m.hidden, m.vocabulary, m.context, name_of(l.precision),
      o.strategy.name, o.micro_batch, o.global_batch, l.sequence_length);
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

std::vector<Verification> verify_memory(const Transformer& m, const Layout& l,
                                        const RuntimeOptions& options, Transport& transport) {
  const TrainOptions o = training_of(m, l, options);
  const RuntimeMemory planned = plan_runtime_memory(m, l, options);
  const DryRun dry = dry_run(o, 0, static_cast<int>(l.data));
  std::vector<Verification> all;
  all.push_back({fmt::format("dry run of rank 0 of {}", l.data),
                 compare(planned, dry.device, dry.host, dry.file)});
  if (transport.world_size() == l.data && is_small(m, l, planned)) {
    all.push_back({fmt::format("two real steps of {} rank{}", l.data, l.data == 1 ? "" : "s"),
                   run_two_steps(o, planned, transport)});
  }
  return all;
}

}  // namespace ringworld
