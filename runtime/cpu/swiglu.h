// SwiGLU, one row at a time.
#pragma once

#include <cstdint>

#include "runtime/cpu/types.h"

namespace ringworld {

template <typename T>
struct SwigluKernels {
  void (*forward)(T* y, const T* gate, const T* up, std::int64_t n);
  // dgate may be gate, and dup up.
  void (*backward)(T* dgate, T* dup, const T* dy, const T* gate, const T* up, std::int64_t n);
};

const ByFloatingType<SwigluKernels>& swiglu_kernels();

}  // namespace ringworld
