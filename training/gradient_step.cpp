#include "training/gradient_step.h"

#include <algorithm>

namespace ringworld {
namespace {

std::int64_t trained_tokens(const HostBatch& batch) {
  return std::count_if(batch.targets.begin(), batch.targets.end(),
                       [](std::int32_t target) { return target >= 0; });
}

}  // namespace

GradientStep compute_gradients(const Model& model, Backend& backend, Strategy& strategy,
                               Communicator* communicator, std::span<const HostBatch> micro_batches,
                               const GradientOptions& options) {
  GradientStep result;
  result.loss_scale = options.loss_scale;
  for (const HostBatch& batch : micro_batches) {
    result.tokens += trained_tokens(batch);
  }
  if (communicator != nullptr) {
    result.tokens = communicator->all_reduce_value(result.tokens, ReduceOp::sum, "trained tokens");
  }
  strategy.begin_step(static_cast<int>(micro_batches.size()));
  double loss = 0;
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    Batch batch = upload(backend, micro_batches[i]);
    batch.gradient_factor = options.loss_scale * result.gradient_factor();
    loss += run_micro_batch(model, backend, batch, strategy, static_cast<int>(i),
                            {.checkpoint = options.checkpoint, .observer = options.observer});
  }
  strategy.finish_gradients();

  if (communicator != nullptr) {
    loss = communicator->all_reduce_value(loss, ReduceOp::sum, "loss");
  }
  result.loss = loss * result.gradient_factor();
  result.gradient_norm = strategy.gradient_norm() / options.loss_scale;
  return result;
}

}  // namespace ringworld
