// What the local actions of a step come to: sums, each over the chunks that it adds, in their
// order.
//
// A schedule adds with one action a term and puts aside what it would overwrite too early. Taken
// together, such actions read every term once and write the sum once, and nothing is put aside:
//
//   aside = chunk, chunk = a, chunk += aside, chunk += b     chunk = (a + chunk) + b
#pragma once

#include <optional>
#include <vector>

#include "collectives/schedule.h"

namespace ringworld {

struct LocalSum {
  int chunk;
  std::vector<int> terms;  // chunks, each with what it held before the step; one: a copy
  // A chunk that may be worked in, since nobody reads what the step would have left there; -1 where
  // there is none, and the sum begins in `chunk`.
  int workplace = -1;
};

// Of the step with this index; nothing where they are no such sums: a sum is added to another one,
// or is needed under two names, or a term would be overwritten before its turn.
std::optional<std::vector<LocalSum>> local_sums(const Schedule& schedule, std::size_t step);

}  // namespace ringworld
