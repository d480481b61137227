// What ringworld train and verify can be told.
#pragma once

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

void declare(OptionSet& set, TrainOptions& o);
void check(TrainOptions& o);
void declare(OptionSet& set, VerifyOptions& o);
void check(VerifyOptions& o);

}  // namespace ringworld
