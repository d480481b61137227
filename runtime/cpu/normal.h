// Normal random numbers, many at a time.
#pragma once

#include <cstdint>

#include "runtime/cpu/types.h"
#include "runtime/random.h"

namespace ringworld {

template <typename T>
struct NormalKernels {
  // out[i] = mean + deviation * random_normal(key, first_index + i), up to rounding
  void (*normal)(T* out, const RandomKey& key, std::uint64_t first_index, std::int64_t n,
                 double mean, double deviation);
};

const ByFloatingType<NormalKernels>& normal_kernels();

}  // namespace ringworld
