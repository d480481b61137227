// The turns of rotary positions, one head of one token at a time.
#pragma once

#include <cstdint>

#include "runtime/cpu/types.h"

namespace ringworld {

template <typename T>
struct RotaryKernels {
  // (a, b) = (a cos - b sin, a sin + b cos) for n pairs.
  void (*turn)(T* a, T* b, const ComputeType<T>* cosines, const ComputeType<T>* sines,
               std::int64_t n);
};

const ByFloatingType<RotaryKernels>& rotary_kernels();

}  // namespace ringworld
