#include "cli/output_file.h"

#include <fstream>
#include <iostream>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

[[noreturn]] void refuse(std::string_view option, const std::string& path) {
  throw DataError(
      fmt::format("{}: cannot write '{}'; check the path and free space", option, path));
}

}  // namespace

void check_writable(std::string_view option, const std::string& path) {
  if (!path.empty() && path != "-" && !std::ofstream(path, std::ios::app)) {
    refuse(option, path);
  }
}

void write_file(std::string_view option, const std::string& path, const std::string& text) {
  if (path.empty()) {
    return;
  }
  if (path == "-") {
    std::cout << text << std::flush;
    return;
  }
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) {
    refuse(option, path);
  }
}

}  // namespace ringworld
