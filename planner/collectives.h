// What a step communicates: every collective of the slowest stage, by axis, with group, bytes and
// the time that one takes. Their sums are the step's communication (planner/step.h), what is hidden
// included.
#pragma once

#include <string_view>
#include <vector>

#include "planner/step.h"

namespace ringworld {

struct CollectiveUse {
  StepPart axis = StepPart::data;
  std::string_view operation;  // "all_reduce", "send", ...
  std::string_view what;       // "gradients"
  RankGroup group;
  double bytes = 0;  // the whole vector, as in planner/network.h
  double times = 0;  // in a step
  CollectiveTime each;

  double seconds() const { return times * each.seconds; }
};

std::vector<CollectiveUse> collectives_of_step(const Transformer& model, const Layout& layout,
                                               const Machine& machine, const Software& software,
                                               std::int64_t stage);

}  // namespace ringworld
