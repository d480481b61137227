// The arithmetic of collectives, for every element type.
#pragma once

#include <cstdint>

#include "runtime/backend.h"

namespace ringworld {

struct CombineKernels {
  // out = out (op) x
  void (*combine)(void* out, const void* x, std::int64_t n, ReduceOp op);
  // x /= divisor, which is not 0
  void (*divide)(void* x, std::int64_t n, std::int64_t divisor);
};

CombineKernels combine_kernels(DType dtype);

}  // namespace ringworld
