#include "cli/output_file.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

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
  if (path.empty() || path == "-") {
    return;
  }
  std::error_code unknown;
  const bool is_new = !std::filesystem::exists(path, unknown);
  if (!std::ofstream(path, std::ios::app)) {
    refuse(option, path);
  }
  if (is_new) {
    std::filesystem::remove(path, unknown);
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
  // Beside it first, unless it is a device or a link: what was there is lost only to what is whole.
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, unknown);
  const bool replaces = !exists(status) || is_regular_file(status);
  const std::string written = replaces ? path + ".part" : path;
  const auto write = [&] {
    std::ofstream file(written);
    file << text << std::flush;
    return static_cast<bool>(file);
  };
  bool whole = write();
  if (whole && replaces) {
    std::filesystem::rename(written, path, unknown);
    whole = !unknown;
  }
  if (!whole) {
    if (replaces) {
      std::filesystem::remove(written, unknown);
    }
    refuse(option, path);
  }
}

}  // namespace ringworld
