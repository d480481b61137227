// Kernels over the elements of whole tensors.
#pragma once

#include <cstdint>

#include "runtime/cpu/types.h"
#include "runtime/wide_sum.h"

namespace ringworld {

template <typename T>
struct ElementwiseKernels {
  void (*add)(T* out, const T* a, const T* b, std::int64_t n);  // out may be a or b
  void (*scale)(T* x, double factor, std::int64_t n);
  double (*sum)(const T* x, std::int64_t n);  // in f64
  WideSum (*sum_of_squares)(const T* x, std::int64_t n);
  void (*gelu_forward)(T* y, const T* x, std::int64_t n);
  void (*gelu_backward)(T* dx, const T* dy, const T* x, std::int64_t n);  // dx may be dy
};

const ByFloatingType<ElementwiseKernels>& elementwise_kernels();

}  // namespace ringworld
