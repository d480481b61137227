// What tests ask of texts.
#pragma once

#include <cstddef>
#include <string>

namespace ringworld {

inline std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) {
    ++count;
  }
  return count;
}

}  // namespace ringworld
