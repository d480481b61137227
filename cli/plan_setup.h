// From what a plan was told to what it is of: every value settled, with its source.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "planner/layout.h"
#include "planner/model_input.h"
#include "planner/transformer.h"

namespace ringworld {

struct PlanSetup {
  Transformer model;
  Layout layout;
  std::vector<Stated> stated;  // model, layout, precision, hardware
  std::string device;          // "H100-80GB"; empty: none was named
  Bytes budget{0};             // of it; 0: none was given
};

// Throws UsageError for what the layout cannot be.
PlanSetup settle(const PlannedTraining& training);

// The values and their sources as a table, at most 100 columns wide.
std::string stated_table(const std::vector<Stated>& stated);

}  // namespace ringworld
