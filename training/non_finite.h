// Where a loss or gradient that is not finite came from.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "models/model.h"
#include "parallel/mesh.h"
#include "parallel/stage.h"
#include "training/data.h"
#include "training/gradient_step.h"

namespace ringworld {

// Called by every rank after a step whose loss or gradient norm, in `result`, is not finite. The
// step is run once more, without an update, and each rank looks at every tensor of its own in the
// order of execution, before it is reduced: parameters, outputs of forward, gradients of backward.
// Throws NumericalError, the same on all ranks, that names step, rank, and the first such tensor of
// the lowest rank that has one. `note` follows the step's numbers. Gradients are overwritten.
// Nothing is checked while training goes well, so that it costs nothing.
[[noreturn]] void throw_non_finite(const Model& model, Backend& backend, Strategy& strategy,
                                   const Mesh& mesh, const Stage& stage,
                                   std::span<const HostBatch> micro_batches, std::int64_t step,
                                   const GradientStep& result, std::string_view note = "");

}  // namespace ringworld
