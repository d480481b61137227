#include "runtime/cpu/blas.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include <cblas.h>
#include <fmt/format.h>

namespace ringworld {
namespace {

// OpenBLAS's own threads are one setting for the whole process, which ranks that are threads of one
// process cannot share. The backend cuts a product into one part per thread of the rank instead.
const bool one_thread_per_product = [] {
  openblas_set_num_threads(1);
  return true;
}();

blasint blas_size(std::int64_t size) {
  if (size > std::numeric_limits<blasint>::max()) {
    throw std::invalid_argument(fmt::format("matmul: {} is too large for OpenBLAS", size));
  }
  return static_cast<blasint>(size);
}

template <typename T>
constexpr auto cblas_gemm = cblas_sgemm;
template <>
constexpr auto cblas_gemm<double> = cblas_dgemm;

}  // namespace

template <typename T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const MatrixView<T>& a,
          const MatrixView<T>& b, T beta, T* c, std::int64_t c_stride) {
  if (m == 0 || n == 0) {
    return;
  }
  if (k == 0) {
    if (beta == T{0}) {
      for (std::int64_t row = 0; row < m; ++row) {
        std::fill_n(c + row * c_stride, n, T{0});
      }
    }
    return;
  }
  cblas_gemm<T>(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
                b.transposed ? CblasTrans : CblasNoTrans, blas_size(m), blas_size(n), blas_size(k),
                alpha, a.data, blas_size(a.stride), b.data, blas_size(b.stride), beta, c,
                blas_size(c_stride));
}

template void gemm(std::int64_t, std::int64_t, std::int64_t, float, const MatrixView<float>&,
                   const MatrixView<float>&, float, float*, std::int64_t);
template void gemm(std::int64_t, std::int64_t, std::int64_t, double, const MatrixView<double>&,
                   const MatrixView<double>&, double, double*, std::int64_t);

}  // namespace ringworld
