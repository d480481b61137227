// Forward and backward of a step's micro-batches on a rank: over the whole chain of units one after
// the other, over a pipeline stage as its schedule says.
#pragma once

#include <functional>

#include "parallel/pass.h"
#include "parallel/stage.h"

namespace ringworld {

// Whose forward runs a second time: by unit of the model's own chain.
std::vector<bool> recomputed_units(const Model& model, const Stage& stage, std::int64_t checkpoint);

// One step's micro-batches, `count` of them, through this rank's stage, in the order of its
// schedule: adds their gradients, each times its batch.gradient_factor, to the parameters'
// gradients. The strategy hears of every unit. `batch` gives a micro-batch, counted from 0, to the
// device; it stays there from its forward to its backward. Returns the sum of all tokens' losses on
// the ranks that have the last unit, and 0 on the others.
double run_micro_batches(const Model& model, Backend& backend, Strategy& strategy,
                         const Stage& stage, int count,
                         const std::function<Batch(int micro_batch)>& batch,
                         const MicroBatchOptions& options = {});

// Forward alone, holding one unit's activations at a time; returns as run_micro_batches does.
double evaluate(const Model& model, Backend& backend, Strategy& strategy, const Stage& stage,
                const Batch& batch);

}  // namespace ringworld
