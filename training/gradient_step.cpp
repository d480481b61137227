#include "training/gradient_step.h"

#include <algorithm>

#include "parallel/model_gradients.h"

namespace ringworld {
namespace {

std::int64_t trained_tokens(const HostBatch& batch) {
  return std::count_if(batch.targets.begin(), batch.targets.end(),
                       [](std::int32_t target) { return target >= 0; });
}

}  // namespace

GradientStep compute_gradients(const Model& model, Backend& backend, Strategy& strategy,
                               const Mesh* mesh, std::span<const HostBatch> micro_batches,
                               const GradientOptions& options) {
  GradientStep result;
  result.loss_scale = options.loss_scale;
  for (const HostBatch& batch : micro_batches) {
    result.tokens += trained_tokens(batch);
  }
  if (mesh != nullptr) {
    result.tokens = mesh->data().all_reduce_value(result.tokens, ReduceOp::sum, "trained tokens");
  }
  const int count = static_cast<int>(micro_batches.size());
  const auto on_device = [&](int micro_batch) {
    Batch batch = upload(backend, micro_batches[static_cast<std::size_t>(micro_batch)]);
    batch.gradient_factor = options.loss_scale * result.gradient_factor();
    return batch;
  };
  const Stage whole(static_cast<int>(model.units().size()));
  const Stage& stage = options.stage != nullptr ? *options.stage : whole;
  strategy.begin_step(count);
  double loss = run_micro_batches(model, backend, strategy, stage, count, on_device,
                                  {.checkpoint = options.checkpoint, .observer = options.observer});
  strategy.finish_gradients();

  if (mesh != nullptr) {
    sum_model_gradients(*mesh, strategy);
    loss = sum_of_losses(*mesh, loss, "loss");
  }
  result.loss = loss * result.gradient_factor();
  result.gradient_norm = gradient_norm(mesh, strategy) / options.loss_scale;
  return result;
}

}  // namespace ringworld
