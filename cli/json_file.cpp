#include "cli/json_file.h"

#include <fstream>
#include <iostream>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  if (path == "-") {
    std::cout << json.dump(2) << std::endl;
    return;
  }
  std::ofstream file(path);
  file << json.dump(2) << '\n' << std::flush;
  if (!file) {
    throw DataError(fmt::format("--json: cannot write '{}'; check the path and free space", path));
  }
}

}  // namespace ringworld
