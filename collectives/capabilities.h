// What every algorithm can do with every number format and reduction.
#pragma once

#include <string>

#include "collectives/algorithm.h"
#include "runtime/backend.h"
#include "runtime/dtype.h"

namespace ringworld {

// Why the algorithm cannot serve this dtype and reduction, as a sentence's end: "the mpi reference
// has no ..."; empty when it can. The reduction is looked at for operations that reduce.
std::string refusal(const Algorithm& algorithm, DType dtype, ReduceOp op);

}  // namespace ringworld
