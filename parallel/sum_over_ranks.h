// A wide sum over ranks, the same bits on every rank.
#pragma once

#include <string>

#include "collectives/communicator.h"
#include "runtime/wide_sum.h"

namespace ringworld {

// The sum of every rank's `own`, added in the order of the ranks on each of them: a reduction
// would add highs and lows apart, and in the algorithm's order. Every rank calls, with the same
// label.
WideSum sum_over_ranks(Communicator& communicator, const WideSum& own, std::string label);

}  // namespace ringworld
