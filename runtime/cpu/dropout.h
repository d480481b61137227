// Dropout, many elements at a time.
#pragma once

#include <cstdint>

#include "runtime/cpu/types.h"
#include "runtime/random.h"

namespace ringworld {

template <typename T>
struct DropoutKernels {
  // out[i] = x[i] * 1 / (1 - probability) where random_uniform(key, first_index + i) >=
  // probability, else 0; out may be x.
  void (*dropout)(T* out, const T* x, const RandomKey& key, std::uint64_t first_index,
                  std::int64_t n, double probability);
};

const ByFloatingType<DropoutKernels>& dropout_kernels();

}  // namespace ringworld
