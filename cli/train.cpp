// ringworld train: trains a model with a strategy, on every rank of the job.
#include <algorithm>
#include <iostream>
#include <optional>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/rank.h"
#include "training/trainer.h"

namespace ringworld {
namespace {

nlohmann::ordered_json settings_of(const TrainOptions& o, const Model& model) {
  return {{"model", model.name()},
          {"parameters", model.parameter_count()},
          {"precision", name_of(o.precision)},
          {"strategy", o.strategy.name},
          {"bucket_bytes", o.strategy.bucket.value},
          {"layers", o.model.layers},
          {"heads", o.model.heads},
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
          {"device_memory", o.resources.device_memory.value},
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
                     "{:.0f} % of "
                     "sgemm's rate\n\n{}",
                     first_loss_, last_.loss, human_count(median(rates_)), 100 * median(fractions_),
                     peak_table(peak))
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

}  // namespace

ExitCode run_train(const TrainOptions& o, Transport& transport) {
  // What can be refused is refused before anything is allocated.
  const BatchPlan batches = plan_batches(o.global_batch, o.micro_batch, transport.world_size());
  const std::unique_ptr<Model> model = make_model(o.model, o.precision);
  model->check_sequence_length(o.data.sequence_length);
  const Datasets data = open_datasets(o.data, model->vocabulary());

  Rank rank(o.resources, transport);
  rank.check_same_everywhere(fmt::format("{}data={}\n", o.settings, data.train.fingerprint()));
  if (rank.prints()) {
    std::cout << fmt::format("{}: {} parameters in {}, {}; {}\n", model->name(),
                             human_count(static_cast<double>(model->parameter_count())),
                             name_of(o.precision), o.strategy.name, rank.description())
              << fmt::format(
                     "{} sequences of {} tokens to train on, {} held out; {} micro-batch{} "
                     "of {} per rank and step\n",
                     data.train.samples(), data.train.sequence_length(), data.validation.samples(),
                     batches.accumulation_steps, batches.accumulation_steps == 1 ? "" : "es",
                     batches.micro_batch)
              << std::flush;
  }

  // On a device of its own: the yardstick is no part of the virtual GPU's memory.
  const double sgemm_rate =
      measure_sgemm_rate(*make_cpu_backend(Device::create({}), rank.backend().threads()));
  std::optional<Report> report;
  rank.on_rank_0([&] {
    nlohmann::ordered_json conditions = rank.conditions();
    conditions.update(settings_of(o, *model));
    conditions["algorithm"] = o.resources.algorithm;
    conditions["reproducible"] = o.resources.reproducible;
    conditions["tuning"] = o.resources.tuning;
    conditions["nodes"] = o.resources.nodes;
    conditions["sgemm_flops_per_second"] = sgemm_rate;
    report.emplace(o, conditions);
  });

  const auto strategy =
      make_strategy(o.strategy, *model, rank.backend(), rank.communicator(), o.seed);
  const auto optimizer = make_optimizer(o.optimizer, strategy->shards(), rank.backend());
  Trainer trainer(*model, rank.backend(), *strategy, *optimizer, rank.communicator(), data,
                  {.batches = batches,
                   .learning_rate = o.learning_rate,
                   .clip_norm = o.clip_norm,
                   .seed = o.seed,
                   .validation_interval = o.validation_interval,
                   .validation_batches = o.validation_batches});

  const double flops_per_rank_and_token =
      model->flops_per_token(o.data.sequence_length) / transport.world_size();
  for (std::int64_t step = 0; step < o.steps; ++step) {
    StepMetrics metrics = trainer.step();
    metrics.sgemm_fraction = metrics.tokens_per_second * flops_per_rank_and_token / sgemm_rate;
    if (report) {
      report->step(metrics);
    }
  }
  if (report) {
    report->finish(rank.backend().device().ledger());
  }
  rank.explain();
  return ExitCode::ok;
}

}  // namespace ringworld
