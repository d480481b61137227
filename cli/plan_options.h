// What ringworld plan can be told.
#pragma once

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

// Model, layout, precision and hardware: of every plan.
void declare_planned_training(OptionSet& set, PlannedTraining& o);

void declare(OptionSet& set, PlanMemoryOptions& o);
void check(PlanMemoryOptions& o);

}  // namespace ringworld
