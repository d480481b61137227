// What ringworld plan step, cost, search and validate can be told.
#pragma once

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

void declare(OptionSet& set, PlanStepOptions& o);
void check(PlanStepOptions& o);
void declare(OptionSet& set, PlanCostOptions& o);
void check(PlanCostOptions& o);
void declare(OptionSet& set, PlanSearchOptions& o);
void check(PlanSearchOptions& o);
void declare(OptionSet& set, PlanValidateOptions& o);
void check(PlanValidateOptions& o);

}  // namespace ringworld
