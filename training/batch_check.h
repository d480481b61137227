// That the ranks of a mesh read the batches that they should.
#pragma once

#include <cstdint>

#include "parallel/mesh.h"
#include "training/batch_plan.h"
#include "training/data.h"

namespace ringworld {

// Before the first step: the ranks that hold one copy of the model together have read the same
// tokens, and no sequence of the step is read by two copies. Throws DataError, on every rank, that
// names two ranks of which that is not so; every rank calls.
void check_batches(const Mesh& mesh, const TokenDataset& data, std::uint64_t seed,
                   const BatchPlan& batches);

}  // namespace ringworld
