// Conversion between floating types.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace ringworld {

// out and x point to n elements of the kernel's two types.
using CastKernel = void (*)(void* out, const void* x, std::int64_t n);

CastKernel cast_kernel(DType out, DType x);

}  // namespace ringworld
