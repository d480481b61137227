#include "runtime/cpu/optimizers.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/optimizers.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// p -= rate decay p; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
// p -= rate m' / (sqrt(v') + epsilon), where m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t) undo
// the bias of moments that started at zero. Coefficients are computed in double.
template <typename T>
void adamw(T* parameter, T* first_moment, T* second_moment, const T* gradient, std::int64_t n,
           const AdamWStep& step) {
  const VectorsOf<T> d;
  const auto set = [=](double value)
                       HWY_ATTR { return hn::Set(d, static_cast<ComputeType<T>>(value)); };
  const auto t = static_cast<double>(step.step);
  const auto scale = set(step.gradient_scale);
  const auto keep = set(1 - step.learning_rate * step.weight_decay);
  const auto beta1 = set(step.beta1);
  const auto beta2 = set(step.beta2);
  const auto take1 = set(1 - step.beta1);
  const auto take2 = set(1 - step.beta2);
  const auto rate = set(step.learning_rate / (1 - std::pow(step.beta1, t)));
  const auto deviation_scale = set(1 / std::sqrt(1 - std::pow(step.beta2, t)));
  const auto epsilon = set(step.epsilon);
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    const auto g = hn::Mul(load(d, gradient + i, count), scale);
    const auto m = hn::MulAdd(load(d, first_moment + i, count), beta1, hn::Mul(g, take1));
    const auto v =
        hn::MulAdd(load(d, second_moment + i, count), beta2, hn::Mul(hn::Mul(g, g), take2));
    const auto deviation = hn::MulAdd(hn::Sqrt(v), deviation_scale, epsilon);
    const auto update = hn::Mul(rate, hn::Div(m, deviation));
    const auto p = hn::MulSub(load(d, parameter + i, count), keep, update);
    store(m, d, first_moment + i, count);
    store(v, d, second_moment + i, count);
    store(p, d, parameter + i, count);
  });
}

template <typename T>
void sgd(T* parameter, T* velocity, const T* gradient, std::int64_t n, const SgdStep& step) {
  const VectorsOf<T> d;
  const auto set = [=](double value)
                       HWY_ATTR { return hn::Set(d, static_cast<ComputeType<T>>(value)); };
  const auto scale = set(step.gradient_scale);
  const auto keep = set(1 - step.learning_rate * step.weight_decay);
  const auto momentum = set(step.momentum);
  const auto rate = set(step.learning_rate);
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    auto v = hn::Mul(load(d, gradient + i, count), scale);
    if (velocity != nullptr) {
      v = hn::MulAdd(load(d, velocity + i, count), momentum, v);
      store(v, d, velocity + i, count);
    }
    store(hn::MulSub(load(d, parameter + i, count), keep, hn::Mul(rate, v)), d, parameter + i,
          count);
  });
}

}  // namespace

const ByFloatingType<OptimizerKernels>* optimizer_table() {
  static constexpr ByFloatingType<OptimizerKernels> table{{adamw<double>, sgd<double>},
                                                          {adamw<float>, sgd<float>},
                                                          {adamw<bf16>, sgd<bf16>},
                                                          {adamw<f16>, sgd<f16>}};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(optimizer_table);

const ByFloatingType<OptimizerKernels>& optimizer_kernels() {
  return *HWY_DYNAMIC_DISPATCH(optimizer_table)();
}

}  // namespace ringworld
#endif
