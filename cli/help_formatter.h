// How help looks: options by group, two columns, wrapped to 100.
#pragma once

#include <sstream>
#include <string>

#include <CLI/CLI.hpp>

namespace ringworld {

// `text` broken at blanks into lines of at most `width` characters, all but the first indented.
inline std::string wrap(const std::string& text, std::size_t width, std::size_t indent) {
  std::istringstream words(text);
  std::string result;
  std::size_t used = 0;
  for (std::string word; words >> word;) {
    if (used > 0 && used + 1 + word.size() > width) {
      result += "\n" + std::string(indent, ' ');
      used = 0;
    }
    if (used > 0) {
      result += ' ';
    }
    result += word;
    used += word.size() + (used > 0 ? 1 : 0);
  }
  return result;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool /*is_positional*/) const override {
    std::string left = "  " + option->get_name(false, true);
    if (option->get_type_size() != 0) {
      left += " " + option->get_type_name();
    }
    if (left.size() + 2 > left_column) {
      left += "\n" + std::string(left_column, ' ');
    } else {
      left.resize(left_column, ' ');
    }
    return left + wrap(option->get_description(), total - left_column, left_column) + "\n";
  }

  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    return "\nUsage: " + app->get_name() + " [--option VALUE]...\n";
  }

 private:
  static constexpr std::size_t left_column = 36;
  static constexpr std::size_t total = 100;
};

}  // namespace ringworld
