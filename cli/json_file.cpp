#include "cli/json_file.h"

#include "cli/output_file.h"

namespace ringworld {

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  write_file("--json", path, json.dump(2) + "\n");
}

}  // namespace ringworld
