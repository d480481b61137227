// Root mean square normalisation, row by row.
#pragma once

#include <cstdint>

#include "runtime/cpu/types.h"

namespace ringworld {

template <typename T>
struct RmsNormForward {
  T* y;                         // (rows, width)
  ComputeType<T>* inverse_rms;  // (rows)
  const T* x;                   // (rows, width)
  const T* weight;              // (width)
  std::int64_t width;
  double epsilon;
};

template <typename T>
struct RmsNormBackward {
  T* dx;                              // (rows, width)
  const T* dy;                        // (rows, width)
  const T* x;                         // (rows, width)
  const T* weight;                    // (width)
  const ComputeType<T>* inverse_rms;  // (rows)
  std::int64_t width;
};

template <typename T>
struct RmsNormKernels {
  void (*forward)(const RmsNormForward<T>& tensors, std::int64_t begin, std::int64_t end);
  // dx += for rows [begin, end); dweight (width) = what these rows give to it.
  void (*backward)(const RmsNormBackward<T>& tensors, ComputeType<T>* dweight, std::int64_t begin,
                   std::int64_t end);
};

const ByFloatingType<RmsNormKernels>& rms_norm_kernels();

}  // namespace ringworld
