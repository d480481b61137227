// The symbolic proof: runs an algorithm's schedules for all ranks at once, in one process, on
// chunks that hold not numbers but what they would be a sum of.
//
// It shows, for one world size: that every message is matched by a receive of as many chunks, each
// as long; that no rank waits for ever even when sends are not buffered; that no contribution is
// added twice, none to another part of the data, and none is read before it is there; that every
// rank ends with what the operation promises; that all ranks hold the same expression, operand by
// operand, and so the same bits; and that steps and elements sent equal the algorithm's closed
// forms.
#pragma once

#include <bitset>
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/schedule.h"

namespace ringworld {

inline constexpr int max_proved_ranks = 64;
using Contributors = std::bitset<max_proved_ranks>;

// What one chunk of one rank holds: nothing, or the reduction of some ranks' contributions to one
// part of the data.
struct Content {
  int part = -1;  // which; -1 for nothing
  Contributors contributors = {};
  int expression = -1;  // equal for equal expressions: the same operands in the same order
  bool defined() const { return part >= 0; }
  bool operator==(const Content&) const = default;
};

// What all ranks hold: contents[rank][chunk].
using Contents = std::vector<std::vector<Content>>;

struct ProofOptions {
  int root = 0;
  bool equal_chunks = false;  // all chunks are equally long
  bool rank_order = false;    // demand that contributions are added in the order of the ranks
};

// Nothing when the schedules prove right, one per rank; otherwise what is wrong, with rank, step
// and chunk. At most max_proved_ranks.
std::optional<std::string> refute(Operation operation, const std::vector<Schedule>& schedules,
                                  const ProofOptions& options = {});

// The same for an algorithm, its closed forms included, for every root where it has one. An
// algorithm that refuses this number of ranks has nothing to prove.
std::optional<std::string> refute(const Algorithm& algorithm, int ranks);

// What everybody holds before the first step, and then whenever steps complete, when every step
// with messages takes one unit of time. Throws std::invalid_argument with the refutation when the
// schedules are wrong.
std::vector<Contents> trace(Operation operation, const std::vector<Schedule>& schedules,
                            const ProofOptions& options = {});

// The schedules of all ranks.
std::vector<Schedule> emit_all(const Algorithm& algorithm, int ranks, int root);

}  // namespace ringworld
