// What ringworld show shards can be told.
#pragma once

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

void declare(OptionSet& set, ShowShardsOptions& o);
void check(ShowShardsOptions& o);

}  // namespace ringworld
