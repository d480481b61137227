// The training loop: optimizer steps over a data set, on this rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "parallel/mesh.h"
#include "parallel/stage.h"
#include "parallel/strategy.h"
#include "training/batch_plan.h"
#include "training/data.h"
#include "training/gradient_step.h"
#include "training/learning_rate.h"
#include "training/loss_scaler.h"
#include "training/metrics.h"
#include "training/optimizer.h"

namespace ringworld {

struct TrainerOptions {
  BatchPlan batches = {};
  LearningRateOptions learning_rate;
  double clip_norm = 1;  // 0: gradients are not clipped
  LossScalerOptions loss_scaling = {};
  std::uint64_t seed = 0;
  std::int64_t checkpoint = 0;           // MicroBatchOptions
  std::int64_t validation_interval = 0;  // steps; 0: never
  std::int64_t validation_batches = 0;   // global batches; 0: the whole validation set
};

// For whoever looks into a step.
struct StepHooks {
  UnitObserver* units = nullptr;
  std::function<void(const GradientStep&)> before_update = {};  // gradients are complete
  std::function<void()> after_update = {};
};

// Everything it is given must outlive it.
class Trainer {
 public:
  Trainer(const Model& model, Backend& backend, Strategy& strategy, Optimizer& optimizer,
          const Mesh& mesh, const Stage& stage, const Datasets& data,
          const TrainerOptions& options);

  // One optimizer step, and a validation when its turn has come. All fields of the result are set
  // but sgemm_fraction. With loss scaling, a step whose loss or gradient is not finite is skipped
  // on all ranks: it counts, its data are used up and the learning rate's schedule goes on, but
  // parameters and optimizer stay as they were, and its tokens are not trained. Throws
  // NumericalError when loss or gradient is not finite and may not be skipped (any more); the
  // parameters are then as they were before the step.
  StepMetrics step(const StepHooks& hooks = {});

  LossScaler& loss_scaler() { return loss_scaler_; }

  // Mean loss over the validation set, or its first batches; the same on every rank.
  double validate();

 private:
  std::vector<HostBatch> read_micro_batches() const;
  // Tells the scaler how the step went. Throws when it may not be skipped.
  bool is_skipped(const GradientStep& gradient, std::span<const HostBatch> micro_batches);

  const Model& model_;
  Backend& backend_;
  Strategy& strategy_;
  Optimizer& optimizer_;
  const Mesh& mesh_;
  const Stage& stage_;
  const Datasets& data_;
  TrainerOptions options_;
  LossScaler loss_scaler_;
  std::int64_t steps_done_ = 0;
  std::int64_t tokens_done_ = 0;
};

// What a square matrix product of 2048 in f32 reaches on this backend, floating-point operations
// per second: the yardstick of sgemm_fraction.
double measure_sgemm_rate(Backend& backend);

}  // namespace ringworld
