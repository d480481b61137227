// Matrix products on the calling thread, through OpenBLAS.
#pragma once

#include <cstdint>

namespace ringworld {

// A row-major matrix inside a larger one: rows are `stride` elements apart. `transposed` says that
// the product takes its transpose.
template <typename T>
struct MatrixView {
  const T* data;
  std::int64_t stride;
  bool transposed = false;
};

// c (m, n) = alpha a (m, k) b (k, n) + beta c, in f32 or f64. With beta 0 the content of c is not
// read, so it may be NaN. Any of m, n, k may be 0. Throws std::invalid_argument when a size does
// not fit the 32 bits of the BLAS interface.
template <typename T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const MatrixView<T>& a,
          const MatrixView<T>& b, T beta, T* c, std::int64_t c_stride);

}  // namespace ringworld
