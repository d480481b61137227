#include "runtime/cpu/attention.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

template <typename T>
void softmax(T* scores, T* log_sum_exp, const ScoreTile& tile) {
  const hn::ScalableTag<T> d;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    T* const row = scores + r * tile.columns;
    const std::int64_t seen = tile.first_row + r + 1;
    const T largest = max_of(d, row, seen);
    const auto shift = hn::Set(d, largest);
    const T sum = sum_of(d, seen, [=](std::int64_t c, std::int64_t count) HWY_ATTR {
      const auto e = exp(d, hn::Sub(load(d, row + c, count), shift));
      store(e, d, row + c, count);
      return e;
    });
    const auto inverse = hn::Set(d, 1 / sum);
    for_each_vector(d, seen, [=](std::int64_t c, std::int64_t count) HWY_ATTR {
      store(hn::Mul(load(d, row + c, count), inverse), d, row + c, count);
    });
    std::fill(row + seen, row + tile.columns, T{0});
    log_sum_exp[r] = largest + std::log(sum);
  }
}

template <typename T>
void softmax_backward(T* scores, T* dp, const T* log_sum_exp, const T* delta,
                      const ScoreTile& tile) {
  const hn::ScalableTag<T> d;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    T* const p_row = scores + r * tile.columns;
    T* const dp_row = dp + r * tile.columns;
    const std::int64_t seen = tile.first_row + r + 1;
    const auto shift = hn::Set(d, log_sum_exp[r]);
    const auto mean = hn::Set(d, delta[r]);
    for_each_vector(d, seen, [=](std::int64_t c, std::int64_t count) HWY_ATTR {
      const auto p = exp(d, hn::Sub(load(d, p_row + c, count), shift));
      store(p, d, p_row + c, count);
      store(hn::Mul(p, hn::Sub(load(d, dp_row + c, count), mean)), d, dp_row + c, count);
    });
    std::fill(p_row + seen, p_row + tile.columns, T{0});
    std::fill(dp_row + seen, dp_row + tile.columns, T{0});
  }
}

template <typename T>
void row_dots(T* delta, const T* a, const T* b, std::int64_t rows, std::int64_t n,
              std::int64_t stride) {
  const hn::ScalableTag<T> d;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const a_row = a + r * stride;
    const T* const b_row = b + r * stride;
    delta[r] = sum_of(d, n, [=](std::int64_t c, std::int64_t count) HWY_ATTR {
      return hn::Mul(load(d, a_row + c, count), load(d, b_row + c, count));
    });
  }
}

}  // namespace

const AttentionKernels<double>* attention_f64() {
  static constexpr AttentionKernels<double> kernels{softmax<double>, softmax_backward<double>,
                                                    row_dots<double>};
  return &kernels;
}

const AttentionKernels<float>* attention_f32() {
  static constexpr AttentionKernels<float> kernels{softmax<float>, softmax_backward<float>,
                                                   row_dots<float>};
  return &kernels;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(attention_f64);
HWY_EXPORT(attention_f32);

template <>
const AttentionKernels<double>& attention_kernels<double>() {
  return *HWY_DYNAMIC_DISPATCH(attention_f64)();
}

template <>
const AttentionKernels<float>& attention_kernels<float>() {
  return *HWY_DYNAMIC_DISPATCH(attention_f32)();
}

}  // namespace ringworld
#endif
