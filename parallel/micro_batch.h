// Forward and backward of one micro-batch over the chain of units.
#pragma once

#include "models/model.h"
#include "parallel/strategy.h"

namespace ringworld {

// Adds the micro-batch's gradients, times batch.gradient_factor, to the parameters' gradients, and
// returns the sum of its tokens' losses. The strategy hears of every unit's backward.
double run_micro_batch(const Model& model, Backend& backend, const Batch& batch, Strategy& strategy,
                       int micro_batch);

// Forward alone: the sum of the tokens' losses, holding one unit's activations at a time.
double evaluate(const Model& model, Backend& backend, const Batch& batch);

}  // namespace ringworld
