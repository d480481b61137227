#include "training/offload.h"

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {

std::string_view name_of(OffloadLevel level) {
  constexpr std::string_view names[] = {"none", "optimizer", "master"};
  return names[static_cast<std::size_t>(level)];
}

OffloadLevel parse_offload_level(std::string_view text) {
  for (const OffloadLevel level : all_offload_levels) {
    if (name_of(level) == text) {
      return level;
    }
  }
  throw UsageError(fmt::format("unknown offload level '{}'; known: none, optimizer, master", text));
}

}  // namespace ringworld
