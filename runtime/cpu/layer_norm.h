// Layer normalisation, row by row.
#pragma once

#include <cstdint>

#include "runtime/cpu/types.h"

namespace ringworld {

template <typename T>
struct LayerNormForward {
  T* y;                               // (rows, width)
  ComputeType<T>* mean;               // (rows)
  ComputeType<T>* inverse_deviation;  // (rows)
  const T* x;                         // (rows, width)
  const T* weight;                    // (width)
  const T* bias;                      // (width)
  std::int64_t width;
  double epsilon;
};

template <typename T>
struct LayerNormBackward {
  T* dx;                                    // (rows, width)
  const T* dy;                              // (rows, width)
  const T* x;                               // (rows, width)
  const T* weight;                          // (width)
  const ComputeType<T>* mean;               // (rows)
  const ComputeType<T>* inverse_deviation;  // (rows)
  std::int64_t width;
};

template <typename T>
struct LayerNormKernels {
  void (*forward)(const LayerNormForward<T>& tensors, std::int64_t begin, std::int64_t end);
  // dx += for rows [begin, end); sums (2, width) = what these rows give to dweight and to dbias.
  void (*backward)(const LayerNormBackward<T>& tensors, ComputeType<T>* sums, std::int64_t begin,
                   std::int64_t end);
  // out (width) += the sum over parts of sums[part * stride + c].
  void (*add_sums)(T* out, const ComputeType<T>* sums, std::int64_t parts, std::int64_t stride,
                   std::int64_t width);
};

const ByFloatingType<LayerNormKernels>& layer_norm_kernels();

}  // namespace ringworld
