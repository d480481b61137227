// ringworld train: trains a model with a strategy, on every rank of the job.
#include <algorithm>
#include <iostream>
#include <optional>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/rank.h"
#include "cli/step_records.h"
#include "cli/train_setup.h"
#include "training/batch_check.h"
#include "training/trainer.h"

namespace ringworld {
namespace {

nlohmann::ordered_json settings_of(const TrainOptions& o, const Model& model) {
  return {{"model", model.name()},
          {"parameters", model.parameter_count()},
          {"precision", name_of(o.precision)},
          {"strategy", o.strategy.name},
          {"mesh", o.mesh ? to_string(*o.mesh) : std::string()},
          {"sequence_parallel", o.sequence_parallel},
          {"pipeline_schedule", o.pipeline.schedule},
          {"chunks", o.pipeline.chunks},
          {"bucket_bytes", o.strategy.bucket.value},
          {"reduce_gradients", name_of(o.strategy.reduce_gradients)},
          {"gradients_reduced_in", name_of(gradient_dtype(o.precision))},
          {"reshard_after_forward", o.strategy.reshard_after_forward},
          {"prefetch", o.strategy.prefetch},
          {"shard_group", o.strategy.shard_group},
          {"checkpoint_activations", to_string(o.recomputation)},
          {"offload", name_of(o.offload.what)},
          {"offload_to", name_of(o.offload.where)},
          {"host_memory", o.offload.host_memory.value},
          {"file_memory", o.offload.file_memory.value},
          {"host_link_bytes_per_second", o.offload.host_link},
          {"file_link_bytes_per_second", o.offload.file_link},
          {"loss_scaling", name_of(o.loss_scaling.mode)},
          {"loss_scale", o.loss_scaling.initial_scale},
          {"dropout", o.model.dropout},
          {"layers", o.model.layers},
          {"heads", o.model.heads},
          {"kv_heads", o.model.kv_heads},
          {"width", o.model.width},
          {"hidden", o.model.hidden},
          {"vocabulary", model.vocabulary()},
          {"context", model.context()},
          {"steps", o.steps},
          {"global_batch", o.global_batch},
          {"micro_batch", o.micro_batch},
          {"sequence_length", o.data.sequence_length},
          {"optimizer", name_of(o.optimizer.kind)},
          {"learning_rate", o.learning_rate.peak},
          {"schedule", name_of(o.learning_rate.schedule)},
          {"warmup_steps", o.learning_rate.warmup_steps},
          {"minimum_learning_rate_fraction", o.learning_rate.minimum_fraction},
          {"weight_decay", o.optimizer.weight_decay},
          {"beta1", o.optimizer.beta1},
          {"beta2", o.optimizer.beta2},
          {"epsilon", o.optimizer.epsilon},
          {"momentum", o.optimizer.momentum},
          {"clip_norm", o.clip_norm},
          {"validation_interval", o.validation_interval},
          {"validation_fraction", o.data.validation_fraction},
          {"device", o.resources.device},
          {"device_memory", o.resources.budget().value},
          {"seed", o.seed},
          {"data", o.data.paths}};
}

std::string peak_table(const Ledger& ledger) {
  Table table({{"device memory of rank 0"}, {"peak", Align::right}});
  for (std::size_t c = 0; c < category_count; ++c) {
    if (ledger.peak[c].value > 0) {
      table.add_row({std::string(name_of(static_cast<Category>(c))), to_string(ledger.peak[c])});
    }
  }
  table.add_row({"all at once", to_string(ledger.total_peak)});
  return table.text();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What rank 0 shows of a run.
class Report {
 public:
  Report(const TrainOptions& options, const nlohmann::ordered_json& conditions)
      : progress_(std::cout, options.progress, options.steps, find_terminal()) {
    if (!options.metrics.empty()) {
      metrics_.emplace(options.metrics, conditions);
    }
  }

  void step(const StepMetrics& metrics) {
    progress_.step(metrics);
    if (metrics_) {
      metrics_->write(metrics);
    }
    if (first_loss_ == 0) {
      first_loss_ = metrics.loss;
    }
    last_ = metrics;
    rates_.push_back(metrics.tokens_per_second);
    fractions_.push_back(metrics.sgemm_fraction.value_or(0));
  }

  void finish(const Ledger& peak) {
    progress_.finish();
    std::cout << fmt::format(
                     "\nloss {:.4f} in the first step, {:.4f} in the last; median {} tokens/s, "
                     "{:.0f} % of sgemm's rate\n"
                     "rank 0 sent {} in the last step, in {} collectives\n\n{}",
                     first_loss_, last_.loss, human_count(median(rates_)), 100 * median(fractions_),
                     to_string(Bytes(last_.bytes_sent)), last_.collectives, peak_table(peak))
              << std::flush;
  }

 private:
  Progress progress_;
  std::optional<MetricsWriter> metrics_;
  double first_loss_ = 0;
  StepMetrics last_;
  std::vector<double> rates_;
  std::vector<double> fractions_;
};

// What left the device and came back, in the run.
std::string offload_text(const TrainOptions& o, const TrainingState& state,
                         const OffloadTraffic& moved, std::int64_t steps) {
  const auto per_step = [&](Bytes bytes) { return to_string(Bytes(bytes.value / steps)); };
  std::string text = fmt::format(
      "\noffloaded: {}, to {}; a step moves {} down and {} up", name_of(o.offload.what),
      state.file() != nullptr ? state.file()->description() : state.host()->description(),
      per_step(moved.to_host), per_step(moved.to_device));
  if (state.file() != nullptr) {
    text += fmt::format(", writes {} and reads {}", per_step(moved.file_written),
                        per_step(moved.file_read));
  }
  text += fmt::format("; {:.3f} s of a step waited for links\nhost memory: peak {}",
                      moved.seconds_waited / static_cast<double>(steps),
                      to_string(state.host()->ledger().total_peak));
  if (state.file() != nullptr) {
    text += fmt::format("; file: {}", to_string(state.file()->ledger().total_peak));
  }
  return text + "\n";
}

ExitCode train(const TrainOptions& o, const BatchPlan& batches, Rank& rank, const Datasets& data) {
  const std::unique_ptr<Model> model = make_model(o.model, o.precision);
  if (rank.prints()) {
    std::cout << fmt::format("{}: {} parameters in {}, {}; {}\n", model->name(),
                             human_count(static_cast<double>(model->parameter_count())),
                             name_of(o.precision), layout_text(o, rank.communicator().world_size()),
                             rank.description())
              << fmt::format(
                     "{} sequences of {} tokens to train on, {} held out; {} micro-batch{} "
                     "of {} per rank and step\n",
                     data.train.samples(), data.train.sequence_length(), data.validation.samples(),
                     batches.accumulation_steps, batches.accumulation_steps == 1 ? "" : "es",
                     batches.micro_batch)
              << std::flush;
  }

  // On a device of its own: the yardstick is no part of the virtual GPU's memory.
  const double sgemm_rate = measure_sgemm_rate(*rank.make_backend(Device::create({})));
  const auto run_conditions = [&] {
    nlohmann::ordered_json conditions = rank.conditions();
    conditions.update(settings_of(o, *model));
    return conditions;
  };
  std::optional<Report> report;
  rank.on_rank_0([&] {
    nlohmann::ordered_json conditions = run_conditions();
    conditions["algorithm"] = o.resources.algorithm;
    conditions["reproducible"] = o.resources.reproducible;
    conditions["tuning"] = o.resources.tuning;
    conditions["nodes"] = o.resources.nodes;
    conditions["sgemm_flops_per_second"] = sgemm_rate;
    report.emplace(o, conditions);
  });

  TrainingState state(o, rank.backend(), rank.communicator(),
                      [&](std::shared_ptr<Device> device) { return rank.make_backend(device); });
  check_batches(*state.mesh(), data.train, o.seed, batches);
  Trainer trainer(state.model(), rank.backend(), state.strategy(), state.optimizer(), *state.mesh(),
                  state.stage(), data, trainer_options(o, batches));

  const double flops_per_rank_and_token =
      model->flops_per_token(o.data.sequence_length) / rank.communicator().world_size();
  StepRecords records(o, state, rank.backend(), rank.communicator());
  const OffloadTraffic at_start = state.offload_traffic();
  const auto step_once = [&](std::int64_t step) {
    const OffloadTraffic before = state.offload_traffic();
    StepHooks hooks = records.hooks(step + 1);
    OffloadTraffic after;  // without the validation that may follow
    hooks.after_update = [&after, &state, recorded_first = hooks.after_update] {
      if (recorded_first) {
        recorded_first();
      }
      after = state.offload_traffic();
    };
    StepMetrics metrics = trainer.step(hooks);
    metrics.sgemm_fraction = metrics.tokens_per_second * flops_per_rank_and_token / sgemm_rate;
    if (state.host() != nullptr) {
      metrics.offload = after - before;
      metrics.host = state.host()->ledger();
    }
    if (state.file() != nullptr) {
      metrics.file = state.file()->ledger();
    }
    if (report) {
      report->step(metrics);
    }
  };
  try {
    for (std::int64_t step = 0; step < o.steps; ++step) {
      step_once(step);
    }
  } catch (const OutOfDeviceMemory&) {
    records.out_of_memory(run_conditions());
    throw;
  }
  std::string recorded;
  rank.on_rank_0([&] { recorded = records.finish(run_conditions()); });
  if (report) {
    report->finish(rank.backend().device().ledger());
    std::cout << recorded << std::flush;
    if (state.host() != nullptr) {
      std::cout << offload_text(o, state, state.offload_traffic() - at_start, o.steps)
                << std::flush;
    }
  }
  rank.explain();
  return ExitCode::ok;
}

}  // namespace

ExitCode run_train(const TrainOptions& o, Transport& transport) {
  if (o.dry_run.asked) {
    return run_dry(o, transport);
  }
  // What can be refused is refused before anything is allocated.
  const BatchPlan batches = check_training(o, transport.world_size());
  const Datasets data = open_datasets(o.data, make_model(o.model, o.precision)->vocabulary());
  Rank rank(o.resources, transport);
  rank.check_same_everywhere(fmt::format("{}data={}\n", o.settings, data.train.fingerprint()));
  try {
    return train(o, batches, rank, data);
  } catch (const OutOfDeviceMemory& error) {
    throw OutOfDeviceMemory(error.what() +
                            what_would_fit(o, transport.rank(), transport.world_size()));
  }
}

}  // namespace ringworld
