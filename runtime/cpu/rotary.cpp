#include "runtime/cpu/rotary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

template <typename T>
void turn(T* a, T* b, const ComputeType<T>* cosines, const ComputeType<T>* sines, std::int64_t n) {
  const VectorsOf<T> d;
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    const auto cosine = load(d, cosines + i, count);
    const auto sine = load(d, sines + i, count);
    const auto a_i = load(d, a + i, count);
    const auto b_i = load(d, b + i, count);
    store(hn::Sub(hn::Mul(a_i, cosine), hn::Mul(b_i, sine)), d, a + i, count);
    store(hn::Add(hn::Mul(a_i, sine), hn::Mul(b_i, cosine)), d, b + i, count);
  });
}

template <typename T>
constexpr RotaryKernels<T> kernels{turn<T>};

}  // namespace

const ByFloatingType<RotaryKernels>* rotary_table() {
  static constexpr ByFloatingType<RotaryKernels> table{kernels<double>, kernels<float>,
                                                       kernels<bf16>, kernels<f16>};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(rotary_table);

const ByFloatingType<RotaryKernels>& rotary_kernels() {
  return *HWY_DYNAMIC_DISPATCH(rotary_table)();
}

}  // namespace ringworld
#endif
