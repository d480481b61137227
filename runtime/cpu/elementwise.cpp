#include "runtime/cpu/elementwise.h"

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

template <typename T>
double sum_of_squares(const T* x, std::int64_t n) {
  const hn::ScalableTag<double> d;
  return sum_of(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    const auto v = load(d, x + i, count);
    return hn::Mul(v, v);
  });
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
