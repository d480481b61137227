#include "runtime/cpu/swiglu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/swiglu.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// e^-g, clamped to what Exp can take: beyond it the sigmoid is 0 anyway.
template <class D>
HWY_INLINE hn::Vec<D> exp_minus(D d, hn::Vec<D> g) {
  using T = hn::TFromD<D>;
  return hn::Exp(d, hn::Min(hn::Neg(g), hn::Set(d, static_cast<T>(sizeof(T) == 4 ? 87 : 700))));
}

template <typename T>
void forward(T* y, const T* gate, const T* up, std::int64_t n) {
  const VectorsOf<T> d;
  const auto one = hn::Set(d, ComputeType<T>{1});
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    const auto g = load(d, gate + i, count);
    const auto silu = hn::Div(g, hn::Add(one, exp_minus(d, g)));
    store(hn::Mul(silu, load(d, up + i, count)), d, y + i, count);
  });
}

// With s = sigmoid(g) and e = e^-g: d/dg (g s) = s + g s (1 - s), and 1 - s = e s.
template <typename T>
void backward(T* dgate, T* dup, const T* dy, const T* gate, const T* up, std::int64_t n) {
  const VectorsOf<T> d;
  const auto one = hn::Set(d, ComputeType<T>{1});
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    const auto g = load(d, gate + i, count);
    const auto u = load(d, up + i, count);
    const auto dy_i = load(d, dy + i, count);
    const auto e = exp_minus(d, g);
    const auto s = hn::Div(one, hn::Add(one, e));
    const auto slope = hn::Mul(s, hn::MulAdd(g, hn::Mul(e, s), one));
    store(hn::Mul(hn::Mul(dy_i, u), slope), d, dgate + i, count);
    store(hn::Mul(dy_i, hn::Mul(g, s)), d, dup + i, count);
  });
}

template <typename T>
constexpr SwigluKernels<T> kernels{forward<T>, backward<T>};

}  // namespace

const ByFloatingType<SwigluKernels>* swiglu_table() {
  static constexpr ByFloatingType<SwigluKernels> table{kernels<double>, kernels<float>,
                                                       kernels<bf16>, kernels<f16>};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(swiglu_table);

const ByFloatingType<SwigluKernels>& swiglu_kernels() {
  return *HWY_DYNAMIC_DISPATCH(swiglu_table)();
}

}  // namespace ringworld
#endif
