// What ringworld plan can be told.
#pragma once

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

// Model, layout, precision and hardware: of every plan of one layout.
void declare_planned_training(OptionSet& set, PlannedTraining& o);

// Parts of it, for a plan that seeks the layout.
void declare_model(OptionSet& set, ModelQuestion& model);
void declare_precision(OptionSet& set, PlannedTraining& o);
// Which machines there are besides the built-in ones.
void declare_hardware(OptionSet& set, std::string& path);

void declare(OptionSet& set, PlanMemoryOptions& o);
void check(PlanMemoryOptions& o);

}  // namespace ringworld
