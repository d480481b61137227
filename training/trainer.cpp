#include "training/trainer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "parallel/model_gradients.h"
#include "runtime/clock.h"
#include "runtime/process.h"
#include "training/non_finite.h"
#include "training/sample_order.h"

namespace ringworld {
namespace {}  // namespace

Trainer::Trainer(const Model& model, Backend& backend, Strategy& strategy, Optimizer& optimizer,
                 const Mesh& mesh, const Stage& stage, const Datasets& data,
                 const TrainerOptions& options)
    : model_(model),
      backend_(backend),
      strategy_(strategy),
      optimizer_(optimizer),
      mesh_(mesh),
      stage_(stage),
      data_(data),
      options_(options),
      loss_scaler_(options.loss_scaling) {}

std::vector<HostBatch> Trainer::read_micro_batches() const {
  const SampleOrder order(options_.seed, data_.train.samples());
  std::vector<HostBatch> micro_batches;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(options_.batches.micro_batch));
  for (std::int64_t i = 0; i < options_.batches.accumulation_steps; ++i) {
    const std::int64_t first = options_.batches.first_position(steps_done_, i, mesh_.place().data);
    for (std::size_t row = 0; row < samples.size(); ++row) {
      samples[row] = order.at(first + static_cast<std::int64_t>(row));
    }
    micro_batches.push_back(read_batch(data_.train, samples));
    micro_batches.back().draw_dropout(options_.seed, first);
  }
  return micro_batches;
}

bool Trainer::is_skipped(const GradientStep& gradient, std::span<const HostBatch> micro_batches) {
  const bool overflow = gradient.overflowed();
  loss_scaler_.update(overflow);
  if (!overflow || (loss_scaler_.skips_overflows() && !loss_scaler_.gives_up())) {
    return overflow;
  }
  throw_non_finite(model_, backend_, strategy_, mesh_, stage_, micro_batches, steps_done_ + 1,
                   gradient,
                   loss_scaler_.skips_overflows()
                       ? fmt::format("at loss scale {}, the last of {} steps in a row that had to "
                                     "be skipped",
                                     gradient.loss_scale, loss_scaler_.consecutive_skips())
                       : "");
}

StepMetrics Trainer::step(const StepHooks& hooks) {
  const auto start = Clock::now();
  const Traffic before = mesh_.world().traffic();
  backend_.device().reset_peaks();

  const std::vector<HostBatch> micro_batches = read_micro_batches();
  const GradientStep gradient =
      compute_gradients(model_, backend_, strategy_, &mesh_, micro_batches,
                        {.loss_scale = loss_scaler_.scale(),
                         .checkpoint = options_.checkpoint,
                         .observer = hooks.units,
                         .stage = &stage_});
  // Loss and norm are of all ranks, so all ranks skip or none does.
  StepMetrics metrics;
  metrics.skipped = is_skipped(gradient, micro_batches);
  metrics.learning_rate = learning_rate(options_.learning_rate, steps_done_);
  if (hooks.before_update) {
    hooks.before_update(gradient);
  }
  if (!metrics.skipped) {
    strategy_.begin_update();
    // Clipping and unscaling are one multiplication.
    optimizer_.step(metrics.learning_rate,
                    clip_scale(gradient.gradient_norm, options_.clip_norm) / gradient.loss_scale);
    strategy_.finish_update();
    tokens_done_ += gradient.tokens;
  }
  if (hooks.after_update) {
    hooks.after_update();
  }

  ++steps_done_;
  if (loss_scaler_.skips_overflows()) {
    metrics.loss_scale = gradient.loss_scale;
  }
  const Traffic sent = mesh_.world().traffic() - before;
  metrics.step = steps_done_;
  metrics.loss = gradient.loss;
  metrics.grad_norm = gradient.gradient_norm;
  metrics.tokens = tokens_done_;
  metrics.step_seconds = seconds_since(start);
  metrics.tokens_per_second = static_cast<double>(gradient.tokens) / metrics.step_seconds;
  metrics.bytes_sent = sent.bytes_sent.value;
  metrics.collectives = sent.calls;
  metrics.ledger = backend_.device().ledger();
  metrics.peak_resident = peak_resident_size();

  const bool validation_due =
      options_.validation_interval > 0 && steps_done_ % options_.validation_interval == 0;
  if (validation_due) {
    metrics.validation_loss = validate();
  }
  return metrics;
}

double Trainer::validate() {
  const TokenDataset& data = data_.validation;
  const std::int64_t rows = options_.batches.micro_batch;
  const std::int64_t ranks = mesh_.shape().data;
  std::int64_t rounds = (data.samples() + rows * ranks - 1) / (rows * ranks);
  if (options_.validation_batches > 0) {
    rounds = std::min(rounds, options_.validation_batches * options_.batches.accumulation_steps);
  }

  double loss = 0;
  std::int64_t tokens = 0;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(rows));
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::int64_t next = (round * ranks + mesh_.place().data) * rows;
    for (std::int64_t& sample : samples) {
      sample = next < data.samples() ? next : -1;  // rows past the end are not counted
      tokens += sample >= 0 ? data.sequence_length() : 0;
      ++next;
    }
    loss +=
        evaluate(model_, backend_, strategy_, stage_, upload(backend_, read_batch(data, samples)));
  }
  loss = sum_of_losses(mesh_, loss, "validation loss");
  tokens = mesh_.data().all_reduce_value(tokens, ReduceOp::sum, "validation tokens");
  return loss / static_cast<double>(tokens);
}

double measure_sgemm_rate(Backend& backend) {
  constexpr std::int64_t n = 2048;
  constexpr int repetitions = 3;
  const Tensor a = backend.zeros(DType::f32, {n, n}, Category::workspace);
  const Tensor b = backend.zeros(DType::f32, {n, n}, Category::workspace);
  const Tensor out = backend.zeros(DType::f32, {n, n}, Category::workspace);
  double best = 0;
  // The best of a few, but no longer than half a second in all: a start must stay short.
  const auto start = Clock::now();
  for (int i = 0; i < repetitions && (i == 0 || seconds_since(start) < 0.25); ++i) {
    const auto begin = Clock::now();
    backend.matmul(out, a, b);
    best = std::max(best, 2.0 * n * n * n / seconds_since(begin));
  }
  return best;
}

}  // namespace ringworld
