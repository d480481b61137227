#include "runtime/cpu/elementwise.h"

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

template <typename T>
void add(T* out, const T* a, const T* b, std::int64_t n) {
  const VectorsOf<T> d;
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    store(hn::Add(load(d, a + i, count), load(d, b + i, count)), d, out + i, count);
  });
}

template <typename T>
void scale(T* x, double factor, std::int64_t n) {
  const VectorsOf<T> d;
  const auto f = hn::Set(d, static_cast<ComputeType<T>>(factor));
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    store(hn::Mul(load(d, x + i, count), f), d, x + i, count);
  });
}

template <typename T>
double sum(const T* x, std::int64_t n) {
  const hn::ScalableTag<double> d;
  return sum_of(d, n,
                [=](std::int64_t i, std::int64_t count) HWY_ATTR { return load(d, x + i, count); });
}

using Doubles = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<Doubles>;

// In every lane a sum and what is left over of it, as runtime/wide_sum.h has them, where the error
// bounds are.
struct WideLanes {
  DoubleVector high;
  DoubleVector low;

  static HWY_INLINE WideLanes zero() { return {hn::Zero(Doubles()), hn::Zero(Doubles())}; }

  // += x, where what the addition rounds off is collected in low. Low is rounded itself, so this
  // is for a few dozen additions; add() puts them together without that loss.
  HWY_INLINE void collect(DoubleVector x) {
    const auto total = hn::Add(high, x);
    const auto x_part = hn::Sub(total, high);
    low = hn::Add(low, hn::Add(hn::Sub(high, hn::Sub(total, x_part)), hn::Sub(x, x_part)));
    high = total;
  }

  HWY_INLINE void add(const WideLanes& other) {
    WideLanes highs{high, hn::Zero(Doubles())};
    highs.collect(other.high);
    WideLanes lows{low, hn::Zero(Doubles())};
    lows.collect(other.low);
    const WideLanes middle = ordered_sum(highs.high, hn::Add(highs.low, lows.high));
    *this = ordered_sum(middle.high, hn::Add(lows.low, middle.low));
  }

  static HWY_INLINE WideLanes ordered_sum(DoubleVector a, DoubleVector b) {
    const auto total = hn::Add(a, b);
    return {total, hn::Sub(b, hn::Sub(total, a))};
  }
};

// What the f64 `square` of v lost by rounding.
HWY_INLINE DoubleVector rounded_off(DoubleVector v, DoubleVector square) {
#if HWY_NATIVE_FMA
  return hn::MulSub(v, v, square);
#else
  // v = upper + lower with 26 bits each, whose products are exact (Dekker, 1971).
  const auto scaled = hn::Mul(v, hn::Set(Doubles(), 134217729.0));
  const auto upper = hn::Sub(scaled, hn::Sub(scaled, v));
  const auto lower = hn::Sub(v, upper);
  const auto cross = hn::Mul(upper, lower);
  const auto rest = hn::Add(hn::Sub(hn::Mul(upper, upper), square), hn::Add(cross, cross));
  return hn::Add(rest, hn::Mul(lower, lower));
#endif
}

template <typename T>
HWY_INLINE void collect_square(WideLanes& sum, DoubleVector v) {
  const auto square = hn::Mul(v, v);
  sum.collect(square);
  if constexpr (std::is_same_v<T, double>) {
    sum.low = hn::Add(sum.low, rounded_off(v, square));
  }
}

// Four sums at a time hide the latency of the additions.
template <typename T>
WideSum sum_of_squares(const T* x, std::int64_t n) {
  const Doubles d;
  const std::int64_t step = lanes(d);
  constexpr std::int64_t size = sizeof(T);
  constexpr std::int64_t ahead = 4096 / size;  // to fetch: the arithmetic alone leaves gaps
  constexpr std::int64_t additions = 64;       // of one sum, before it goes to the total
  WideLanes total = WideLanes::zero();
  std::int64_t i = 0;
  while (i + 4 * step <= n) {
    WideLanes s0 = WideLanes::zero();
    WideLanes s1 = s0;
    WideLanes s2 = s0;
    WideLanes s3 = s0;
    const std::int64_t end = std::min(n, i + additions * 4 * step);
    for (; i + 4 * step <= end; i += 4 * step) {
      for (std::int64_t line = 0; line < 4 * step; line += 64 / size) {
        hwy::Prefetch(x + i + ahead + line);
      }
      collect_square<T>(s0, load(d, x + i));
      collect_square<T>(s1, load(d, x + i + step));
      collect_square<T>(s2, load(d, x + i + 2 * step));
      collect_square<T>(s3, load(d, x + i + 3 * step));
    }
    s0.add(s1);
    s2.add(s3);
    s0.add(s2);
    total.add(s0);
  }
  for (; i < n; i += step) {
    WideLanes last = WideLanes::zero();
    collect_square<T>(last, load(d, x + i, std::min(step, n - i)));
    total.add(last);
  }
  HWY_ALIGN double highs[hn::MaxLanes(Doubles())];
  HWY_ALIGN double lows[hn::MaxLanes(Doubles())];
  hn::StoreU(total.high, d, highs);
  hn::StoreU(total.low, d, lows);
  WideSum sum;
  for (std::int64_t lane = 0; lane < step; ++lane) {
    sum += WideSum(highs[lane], lows[lane]);
  }
  return sum;
}

// GELU(x) = x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3). Since
// (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), it is x times a sigmoid: no tanh, and no cancellation where
// tanh comes near -1.
constexpr double two_sqrt_2_over_pi = 1.5957691216057307117597842397375;
constexpr double cubic = 0.044715;

// e^-2u, for u of the vector x. Clamped to what Exp can take: beyond it the sigmoid is 0 anyway.
template <class D>
HWY_INLINE hn::Vec<D> exp_minus_2u(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto largest = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? 87 : 700));
  const auto polynomial =
      hn::MulAdd(hn::Mul(x, x), hn::Set(d, static_cast<T>(cubic)), hn::Set(d, static_cast<T>(1)));
  const auto minus_x = hn::Mul(x, hn::Set(d, static_cast<T>(-two_sqrt_2_over_pi)));
  return hn::Exp(d, hn::Min(hn::Mul(minus_x, polynomial), largest));
}

template <typename T>
void gelu_forward(T* y, const T* x, std::int64_t n) {
  const VectorsOf<T> d;
  const auto one = hn::Set(d, ComputeType<T>{1});
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    const auto v = load(d, x + i, count);
    store(hn::Div(v, hn::Add(one, exp_minus_2u(d, v))), d, y + i, count);
  });
}

// With s = sigmoid(2u) and e = e^-2u: d/dx (x s) = s + x s (1 - s) d(2u)/dx, and 1 - s = e s.
template <typename T>
void gelu_backward(T* dx, const T* dy, const T* x, std::int64_t n) {
  const VectorsOf<T> d;
  using Lane = ComputeType<T>;
  const auto one = hn::Set(d, Lane{1});
  const auto slope = hn::Set(d, static_cast<Lane>(two_sqrt_2_over_pi));
  const auto cubic_slope = hn::Set(d, static_cast<Lane>(3 * cubic * two_sqrt_2_over_pi));
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    const auto v = load(d, x + i, count);
    const auto e = exp_minus_2u(d, v);
    const auto s = hn::Div(one, hn::Add(one, e));
    const auto two_du = hn::MulAdd(hn::Mul(v, v), cubic_slope, slope);
    const auto one_minus_s = hn::Mul(e, s);
    const auto derivative = hn::Mul(s, hn::MulAdd(hn::Mul(v, one_minus_s), two_du, one));
    store(hn::Mul(load(d, dy + i, count), derivative), d, dx + i, count);
  });
}

template <typename T>
constexpr ElementwiseKernels<T> kernels{add<T>,          scale<T>,        sum<T>, sum_of_squares<T>,
                                        gelu_forward<T>, gelu_backward<T>};

}  // namespace

const ByFloatingType<ElementwiseKernels>* elementwise_table() {
  static constexpr ByFloatingType<ElementwiseKernels> table{kernels<double>, kernels<float>,
                                                            kernels<bf16>, kernels<f16>};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(elementwise_table);

const ByFloatingType<ElementwiseKernels>& elementwise_kernels() {
  return *HWY_DYNAMIC_DISPATCH(elementwise_table)();
}

}  // namespace ringworld
#endif
