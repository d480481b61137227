// What ringworld bench can be told.
#pragma once

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

void declare(OptionSet& set, BenchOptions& o);
void check(BenchOptions& o);

}  // namespace ringworld
