// Matrix products and their biases.
#include <cstring>
#include <numeric>

#include "runtime/cpu/blas.h"
#include "runtime/cpu/checks.h"
#include "runtime/cpu/cpu_backend.h"
#include "runtime/cpu/narrow_matmul.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/rows.h"
#include "runtime/cpu/workspace.h"
#include "runtime/raw.h"

namespace ringworld {
namespace {

// out (m, n), beside op(a) (m, k) and op(b) (k, n), cut along its longer side: rows of out need
// those of op(a), columns those of op(b).
template <typename T>
void parallel_gemm(int threads, std::int64_t m, std::int64_t n, std::int64_t k,
                   const MatrixView<T>& a, const MatrixView<T>& b, T beta, T* out) {
  const std::int64_t grain = matmul_grain(m, n, k);
  if (m >= n) {
    for_each_range(threads, m, grain, [&](std::int64_t begin, std::int64_t end) {
      const T* const rows = a.data + (a.transposed ? begin : begin * a.stride);
      gemm(end - begin, n, k, T{1}, {rows, a.stride, a.transposed}, b, beta, out + begin * n, n);
    });
  } else {
    for_each_range(threads, n, grain, [&](std::int64_t begin, std::int64_t end) {
      const T* const columns = b.data + (b.transposed ? begin * b.stride : begin);
      gemm(m, end - begin, k, T{1}, a, {columns, b.stride, b.transposed}, beta, out + begin, n);
    });
  }
}

}  // namespace

void CpuBackend::matmul(const Tensor& out, const Tensor& a, const Tensor& b,
                        const MatmulOptions& options) {
  check_floating("matmul", {&a, &b});
  const std::int64_t m = options.transpose_a ? width_of(a) : a.shape().rows();
  const std::int64_t k = options.transpose_a ? a.shape().rows() : width_of(a);
  const std::int64_t n = options.transpose_b ? b.shape().rows() : width_of(b);
  const std::int64_t b_k = options.transpose_b ? width_of(b) : b.shape().rows();
  check(is_maybe_wide(out, a.dtype()) && out.shape().rows() == m && width_of(out) == n && b_k == k,
        "matmul",
        options.transpose_a
            ? (options.transpose_b ? "(M, N) = (K, M)^T (N, K)^T" : "(M, N) = (K, M)^T (K, N)")
            : (options.transpose_b ? "(M, N) = (M, K) (N, K)^T" : "(M, N) = (M, K) (K, N)"),
        {&out, &a, &b});
  count_matmul(out, a, options);
  if (a.dtype() != wide_dtype(a.dtype())) {
    const Tensor workspace = matmul_workspace(*this, out, a, b, options);
    const std::int64_t per_part = workspace.shape()[1];
    const NarrowProduct product{
        m, n, k, options.transpose_a, options.transpose_b, options.accumulate, out, a, b};
    for_each_part(threads_, std::max(m, n), matmul_grain(m, n, k),
                  [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
                    multiply_narrow(product, begin, end, raw<float>(workspace) + part * per_part);
                  });
    return;
  }
  const auto run = [&]<typename T>() {
    parallel_gemm<T>(threads_, m, n, k, {raw<T>(a), width_of(a), options.transpose_a},
                     {raw<T>(b), width_of(b), options.transpose_b},
                     options.accumulate ? T{1} : T{0}, raw<T>(out));
  };
  out.dtype() == DType::f64 ? run.operator()<double>() : run.operator()<float>();
}

void CpuBackend::fill_rows(const Tensor& out, const Tensor& bias) {
  check_floating("fill_rows", {&out, &bias});
  check(bias.elements() == width_of(out), "fill_rows", "(..., N) and (N)", {&out, &bias});
  if (out.elements() == 0) {
    return;
  }
  const std::int64_t row_bytes = bias.bytes().value;
  for_each_range(threads_, out.shape().rows(), rows_per_part(width_of(out)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     std::memcpy(raw_bytes(out) + row * row_bytes, raw_bytes(bias),
                                 static_cast<std::size_t>(row_bytes));
                   }
                 });
}

void CpuBackend::sum_rows(const Tensor& out, const Tensor& x) {
  check_floating("sum_rows", {&x});
  check(is_maybe_wide(out, x.dtype()) && out.elements() == width_of(x), "sum_rows",
        "(N), of the same dtype or wide, and (..., N)", {&out, &x});
  std::vector<std::int64_t> rows(static_cast<std::size_t>(x.shape().rows()));
  std::iota(rows.begin(), rows.end(), 0);
  const std::int64_t columns_per_part = (rows_per_part(x.shape().rows()) + 63) / 64 * 64;
  for_each_range(
      threads_, width_of(x), columns_per_part,
      [&](std::int64_t begin, std::int64_t end) { add_rows(out, 0, x, rows, begin, end); });
}

}  // namespace ringworld
