#include "cli/config_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

// The line without its comment. CLI11 would also cut at a # inside quotes.
std::string without_comment(const std::string& line) {
  char quote = '\0';
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != '\0') {
      if (c == quote) {
        quote = '\0';
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      return line.substr(0, i);
    }
  }
  return line;
}

std::string trimmed(std::string text) {
  CLI::detail::trim(text);
  return text;
}

// The file's text, without comments. What CLI11's parser would skip or misread in silence is
// refused here.
std::string checked_text(const std::string& path) {
  std::error_code ignored;  // a missing file is reported below
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    throw UsageError(fmt::format("--config: '{}' is a directory or a device, not a file", path));
  }
  std::ifstream file(path);
  std::string text;
  bool in_array = false;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line = trimmed(without_comment(line));
    const auto refuse = [&](const char* why) {
      throw UsageError(fmt::format("{}, line {}: {}: {}", path, number, line, why));
    };
    if (!in_array && !line.empty() && line.front() != '[') {
      const std::size_t equals = line.find('=');
      if (equals == std::string::npos) {
        refuse("expected key = value");
      }
      if (trimmed(line.substr(0, equals)).empty()) {
        refuse("there is no key before the =");
      }
      const std::string value = trimmed(line.substr(equals + 1));
      if (value.empty()) {
        refuse("there is no value after the =");
      }
      in_array = value.front() == '[';
    }
    if (in_array && line.ends_with(']')) {
      in_array = false;
    }
    text += line;
    text += in_array ? ' ' : '\n';  // an array becomes one line
  }
  if (in_array) {
    throw UsageError(fmt::format("{}: a [ is never closed", path));
  }
  if (!file.eof()) {
    throw UsageError(fmt::format("--config: {}: {}", path, std::strerror(errno)));
  }
  return text;
}

}  // namespace

std::vector<ConfigEntry> read_config(const std::string& path) {
  std::istringstream text(checked_text(path));
  CLI::ConfigTOML toml;
  toml.comment('\n');  // none is left, and no line holds a line end
  std::vector<ConfigEntry> entries;
  for (CLI::ConfigItem& item : toml.from_config(text)) {
    if (item.name == "++" || item.name == "--") {
      continue;  // a section begins, ends
    }
    if (item.parents.size() > 1) {
      throw UsageError(
          fmt::format("{}: {}: tables within tables are not options", path, item.fullname()));
    }
    std::replace(item.name.begin(), item.name.end(), '_', '-');
    for (const std::string& value : item.inputs) {
      if (value.find_first_of("\"'") != std::string::npos) {
        throw UsageError(fmt::format("{}: {}: a quote is left open in {}", path, item.name, value));
      }
    }
    entries.push_back({item.parents.empty() ? "" : item.parents.front(), item.name, item.inputs});
  }
  return entries;
}

}  // namespace ringworld
