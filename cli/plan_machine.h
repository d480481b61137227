// The machine that a plan is for, and how the program on it is written: every value with its
// source.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "planner/hardware.h"
#include "planner/model_input.h"
#include "planner/step.h"

namespace ringworld {

struct SettledMachine {
  Machine machine;
  Software software = {};
  std::vector<Stated> stated = {};     // which machine and which program
  std::vector<Stated> constants = {};  // of the machine, all that the times rest on
};

// Throws UsageError where --gpu is missing or unknown.
SettledMachine settle_machine(const PlannedTraining& asked, const PlannedProgram& program);

}  // namespace ringworld
