// The arithmetic of collectives, for every element type.
#pragma once

#include <cstdint>

#include "runtime/backend.h"

namespace ringworld {

struct CombineKernels {
  // out = a (op) b, as Backend::combine says
  void (*combine)(void* out, const void* a, const void* b, std::int64_t n, ReduceOp op,
                  bool passing);
  // x /= divisor, which is not 0
  void (*divide)(void* x, std::int64_t n, std::int64_t divisor);
};

CombineKernels combine_kernels(DType dtype);

}  // namespace ringworld
