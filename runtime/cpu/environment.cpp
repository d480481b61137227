// The environment in which the libraries below the CPU backend are fast.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cblas.h>

#include "runtime/backend.h"

namespace ringworld {
namespace {

// OpenBLAS chooses its kernels by the model of the processor, and takes the oldest for a model that
// is newer than itself: matrix products are then several times slower than they need be. Returns
// the kernels to ask for, or nothing where it knows the processor.
std::string missed_kernels() {
#if defined(__x86_64__)
  constexpr std::array<std::string_view, 6> modern = {"Haswell",        "SkylakeX", "Cooperlake",
                                                      "SapphireRapids", "Zen",      "Excavator"};
  const std::string_view chosen = openblas_get_corename();
  if (std::ranges::find(modern, chosen) != modern.end()) {
    return {};
  }
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return "Haswell";
  }
#endif
  return {};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> cpu_backend_environment() {
  // The OpenMP runtime spins at its barriers unless it is told otherwise, and with more threads at
  // work than cores that costs time slices: a rank then takes tens of times longer.
  std::vector<std::pair<std::string, std::string>> variables{{"OMP_WAIT_POLICY", "passive"}};
  if (std::string kernels = missed_kernels(); !kernels.empty()) {
    variables.emplace_back("OPENBLAS_CORETYPE", std::move(kernels));
  }
  return variables;
}

}  // namespace ringworld
