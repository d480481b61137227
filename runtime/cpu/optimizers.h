// Optimizer updates, fused: one pass over parameters, moments and gradients.
#pragma once

#include <cstdint>

#include "runtime/backend.h"
#include "runtime/cpu/types.h"

namespace ringworld {

template <typename T>
struct OptimizerKernels {
  void (*adamw)(T* parameter, T* first_moment, T* second_moment, const T* gradient, std::int64_t n,
                const AdamWStep& step);
  // velocity is null when there is none.
  void (*sgd)(T* parameter, T* velocity, const T* gradient, std::int64_t n, const SgdStep& step);
};

const ByFloatingType<OptimizerKernels>& optimizer_kernels();

}  // namespace ringworld
