// The gradient of one optimizer step, over all its micro-batches and ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "parallel/mesh.h"
#include "parallel/micro_batch.h"
#include "parallel/strategy.h"
#include "training/data.h"

namespace ringworld {

struct GradientStep {
  double loss = 0;           // mean over the trained tokens of all micro-batches and ranks, nats
  std::int64_t tokens = 0;   // trained tokens, over all micro-batches and ranks
  double gradient_norm = 0;  // of the whole model's gradient of that mean, unscaled
  double loss_scale = 1;     // what the gradients in the shards are multiplied with besides

  bool overflowed() const { return !std::isfinite(gradient_norm) || !std::isfinite(loss); }
  // What each token counts in the mean; a step may have no trained tokens at all.
  double gradient_factor() const {
    return 1.0 / static_cast<double>(std::max<std::int64_t>(1, tokens));
  }
};

struct GradientOptions {
  double loss_scale = 1;             // multiplies every token's loss, for backward only
  std::int64_t checkpoint = 0;       // MicroBatchOptions
  UnitObserver* observer = nullptr;  // MicroBatchOptions
  const Stage* stage = nullptr;      // this rank's; none: it has the whole chain
};

// Runs this rank's micro-batches, which are those of all ranks of its model, and leaves the
// gradient of the mean loss, times the loss scale, in the strategy's shards. Loss and norm are the
// same on every rank.
//
// The tokens of all ranks are counted first, so that each token's loss is divided once, by the
// count of the whole step: never a mean of means. `mesh` is null for a single process.
GradientStep compute_gradients(const Model& model, Backend& backend, Strategy& strategy,
                               const Mesh* mesh, std::span<const HostBatch> micro_batches,
                               const GradientOptions& options = {});

}  // namespace ringworld
