// What formulas in double need of counts and units.
#pragma once

#include <cstdint>

namespace ringworld {

inline constexpr double giga = 1e9;

inline double as_double(std::int64_t n) {
  return static_cast<double>(n);
}

}  // namespace ringworld
