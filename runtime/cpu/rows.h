// Kernels over the rows of a matrix: sums of rows, as biases and embeddings need them.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/cpu/types.h"
#include "runtime/tensor.h"

namespace ringworld {

template <typename T>
struct RowKernels {
  // out[c] += sum over `rows` of x[row * width + c] for c in [begin, end). The sum is kept in f32
  // (f64 for f64), in the order of `rows`, and out is rounded once.
  template <typename Out>
  using AddRows = void (*)(Out* out, const T* x, std::int64_t width,
                           std::span<const std::int64_t> rows, std::int64_t begin,
                           std::int64_t end);
  AddRows<T> add_rows;
  AddRows<ComputeType<T>> add_rows_wide;
};

const ByFloatingType<RowKernels>& row_kernels();

// Row `entry` of out += as above, on the calling thread; out is of x's dtype or of its wide one.
void add_rows(const Tensor& out, std::int64_t entry, const Tensor& x,
              std::span<const std::int64_t> rows, std::int64_t begin, std::int64_t end);

}  // namespace ringworld
