// Configuration files: TOML, every option a key.
#pragma once

#include <string>
#include <vector>

namespace ringworld {

struct ConfigEntry {
  std::string section;  // as in [section]; empty above the first one
  std::string key;      // with dashes, however it was written
  std::vector<std::string> values;
};

// The entries in the order of the file. Throws UsageError, naming file and line or key, for what
// cannot be read: tables within tables, keys without a value, quotes left open.
std::vector<ConfigEntry> read_config(const std::string& path);

}  // namespace ringworld
