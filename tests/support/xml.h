// Whether an SVG page is well formed, and what is in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/text.h"

namespace ringworld {

// Empty for well-formed XML of elements, attributes and text; else what is wrong. Knows as much of
// XML as charts need.
inline std::string malformed(const std::string& text) {
  static const std::regex tag(
      R"re(<(/?)([a-zA-Z][a-zA-Z0-9-]*)((?:\s+[a-zA-Z][a-zA-Z0-9:-]*="[^"<&]*(?:&[a-z]+;[^"<&]*)*")*)\s*(/?)>)re");
  static const std::regex words(R"re((?:[^<&>]|&(?:amp|lt|gt|quot);)*)re");
  std::vector<std::string> open;
  std::size_t at = text.find("?>");
  if (at == std::string::npos) {
    return "no declaration";
  }
  at += 2;
  bool has_root = false;
  while (at < text.size()) {
    const std::size_t next = std::min(text.find('<', at), text.size());
    if (!std::regex_match(text.substr(at, next - at), words)) {
      return "bad text: " + text.substr(at, next - at);
    }
    if (next == text.size()) {
      break;
    }
    const std::size_t end = text.find('>', next);
    std::smatch match;
    const std::string element =
        end == std::string::npos ? text.substr(next) : text.substr(next, end + 1 - next);
    if (!std::regex_match(element, match, tag)) {
      return "bad element: " + element;
    }
    if (match[1] == "/") {
      if (open.empty() || open.back() != match[2]) {
        return "closes what is not open: " + element;
      }
      open.pop_back();
    } else if (match[4] != "/") {
      if (open.empty() && has_root) {
        return "a second root: " + element;
      }
      has_root = true;
      open.push_back(match[2]);
    }
    at = end + 1;
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

}  // namespace ringworld
