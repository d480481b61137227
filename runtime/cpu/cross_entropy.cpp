#include "runtime/cpu/cross_entropy.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// Two passes: a row of 50,257 f32 logits is 200 KB, so the second one reads the second-level cache.
template <typename T>
ComputeType<T> log_sum_exp(const T* logits, std::int64_t n) {
  const VectorsOf<T> d;
  const ComputeType<T> largest = max_of(d, logits, n);
  const auto shift = hn::Set(d, largest);
  const ComputeType<T> sum = sum_of(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    return exp(d, hn::Sub(load(d, logits + i, count), shift));
  });
  return largest + std::log(sum);
}

template <typename T>
void backward(T* dlogits, const T* logits, std::int64_t n, std::int64_t target,
              ComputeType<T> log_sum_exp, double factor) {
  using Lane = ComputeType<T>;
  const VectorsOf<T> d;
  const hn::CappedTag<Lane, 1> one;
  // Before dlogits takes its place.
  const Lane log_probability = target < 0 ? Lane{0} : widen_element(logits[target]) - log_sum_exp;
  const auto shift = hn::Set(d, log_sum_exp);
  const auto scale = hn::Set(d, static_cast<Lane>(factor));
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    const auto probability = exp(d, hn::Sub(load(d, logits + i, count), shift));
    store(hn::Mul(scale, probability), d, dlogits + i, count);
  });
  if (target < 0) {
    return;
  }
  // p - 1 cancels for a target that is nearly certain; expm1 does not.
  const Lane gradient = static_cast<Lane>(factor) * std::expm1(log_probability);
  store(hn::Set(one, gradient), one, dlogits + target);
}

}  // namespace

const ByFloatingType<CrossEntropyKernels>* cross_entropy_table() {
  static constexpr ByFloatingType<CrossEntropyKernels> table{
      {log_sum_exp<double>, backward<double>},
      {log_sum_exp<float>, backward<float>},
      {log_sum_exp<bf16>, backward<bf16>},
      {log_sum_exp<f16>, backward<f16>}};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(cross_entropy_table);

const ByFloatingType<CrossEntropyKernels>& cross_entropy_kernels() {
  return *HWY_DYNAMIC_DISPATCH(cross_entropy_table)();
}

}  // namespace ringworld
#endif
