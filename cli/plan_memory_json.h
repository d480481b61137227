// What ringworld plan memory found, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/plan_memory_text.h"

namespace ringworld {

nlohmann::ordered_json json_of(const std::vector<Stated>& stated);
nlohmann::ordered_json json_of(const PlanMemoryResult& result);

}  // namespace ringworld
