#include "training/offload.h"

namespace ringworld {

std::string_view name_of(OffloadLevel level) {
  constexpr std::string_view names[] = {"none", "optimizer", "master"};
  return names[static_cast<std::size_t>(level)];
}

}  // namespace ringworld
