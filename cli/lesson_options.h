// What ringworld lesson can be told.
#pragma once

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

void declare(OptionSet& set, LessonOptions& o);
void check(LessonOptions& o);

}  // namespace ringworld
