// What ringworld show pipeline can be told.
#pragma once

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

void declare(OptionSet& set, ShowPipelineOptions& o);
void check(ShowPipelineOptions& o);

}  // namespace ringworld
