// What the texts and JSON files of plan step, cost and search share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/plan_setup.h"
#include "planner/flops.h"
#include "planner/hardware.h"
#include "planner/step.h"

namespace ringworld {

// "12.3 ms", "5.65 s".
std::string seconds_text(double seconds);
// "Step of llama-3-405b (405.9B parameters) on 16384 H100-80GB", and the layout.
std::string plan_title(std::string_view what, const PlanSetup& setup, const Machine& machine);
// In a few words, for a column.
std::string_view meaning_of(StepPart part);
std::string short_text_of(FlopConvention convention);

// Both, as one table: inputs of a plan, and the machine's.
std::string stated_table(const std::vector<Stated>& stated, const std::vector<Stated>& more);
// A command, broken so that it can be typed as it stands.
std::string command_text(const std::string& command);

nlohmann::ordered_json stated_json(const std::vector<Stated>& stated);
nlohmann::ordered_json layout_json(const Layout& layout);

// Where a pipeline idles for much of a step: what makes that less. Else nothing.
std::string bubble_text(const StepTime& time);

}  // namespace ringworld
