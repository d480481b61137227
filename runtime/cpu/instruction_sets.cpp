#include "runtime/cpu/instruction_sets.h"

#include <stdexcept>

#include <fmt/format.h>
#include <hwy/highway.h>

namespace ringworld {

std::vector<std::string> available_instruction_sets() {
  std::vector<std::string> names;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

void use_instruction_set(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);  // what the machine really supports
  if (name.empty()) {
    return;
  }
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (hwy::TargetName(target) == name) {
      hwy::SetSupportedTargetsForTest(target);
      return;
    }
  }
  throw std::invalid_argument(fmt::format("no kernels for the instruction set {}", name));
}

}  // namespace ringworld
