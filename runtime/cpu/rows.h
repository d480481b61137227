// Kernels over the rows of a matrix: sums of rows, as biases and embeddings need them.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/cpu/types.h"

namespace ringworld {

template <typename T>
struct RowKernels {
  // out[c] += sum over `rows` of x[row * width + c] for c in [begin, end). The sum is kept in f32
  // (f64 for f64), in the order of `rows`, and out is rounded once.
  void (*add_rows)(T* out, const T* x, std::int64_t width, std::span<const std::int64_t> rows,
                   std::int64_t begin, std::int64_t end);
};

const ByFloatingType<RowKernels>& row_kernels();

}  // namespace ringworld
