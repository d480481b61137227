// The causal softmax inside attention, on a tile of the score matrix. Everything else there is
// matrix products (cpu_attention.cpp).
#pragma once

#include <cstdint>

namespace ringworld {

// A tile: rows [first_row, first_row + rows) of one head's scores, columns [0, columns),
// contiguous. Row r sees the columns up to r; what lies beyond is masked.
struct ScoreTile {
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t columns;
};

template <typename T>  // f32 or f64
struct AttentionKernels {
  // scores become probabilities, 0 where masked; log_sum_exp (rows) of each row's scores.
  void (*softmax)(T* scores, T* log_sum_exp, const ScoreTile& tile);
  // scores become probabilities p again; dp, the gradient of p, becomes that of the scores:
  // p (dp - delta), where delta (rows) is the sum of dy y over a row.
  void (*softmax_backward)(T* scores, T* dp, const T* log_sum_exp, const T* delta,
                           const ScoreTile& tile);
  // delta[r] = the sum over n columns of a[r * stride + c] b[r * stride + c].
  void (*row_dots)(T* delta, const T* a, const T* b, std::int64_t rows, std::int64_t n,
                   std::int64_t stride);
};

template <typename T>
const AttentionKernels<T>& attention_kernels();

}  // namespace ringworld
