// Results as a JSON file.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace ringworld {

// To the path, or to standard output for "-". Throws DataError that names --json and the path when
// it cannot be written.
void write_json(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace ringworld
