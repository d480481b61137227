// The symbolic proof: runs an algorithm's schedules for all ranks at once, in one process, on
// chunks that hold not numbers but the set of ranks whose contribution is in them.
//
// It shows, for one world size: that every message is matched by a receive of the same chunk; that
// no rank waits for ever even when sends are not buffered; that no contribution is added twice and
// none is read before it is there; that every rank ends with what the operation promises; and that
// steps and elements sent equal the algorithm's closed forms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/schedule.h"

namespace ringworld {

inline constexpr int max_proved_ranks = 64;

// Nothing when the schedules prove right, one per rank; otherwise what is wrong, with rank, step
// and chunk. At most max_proved_ranks.
std::optional<std::string> refute(Operation operation, const std::vector<Schedule>& schedules,
                                  int root = 0);

// The same for a registered algorithm, its closed forms included, for every root where it has one.
std::optional<std::string> refute(const Algorithm& algorithm, int ranks);

}  // namespace ringworld
