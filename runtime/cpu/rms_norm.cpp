#include "runtime/cpu/rms_norm.h"

#include <cmath>

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// Nothing cancels in a sum of squares, so one pass makes it.
template <typename T>
void forward(const RmsNormForward<T>& t, std::int64_t begin, std::int64_t end) {
  using Lane = ComputeType<T>;
  const VectorsOf<T> d;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = t.x + row * t.width;
    T* const y = t.y + row * t.width;
    const T* const weight = t.weight;
    const T* const next_row = x + t.width;
    const Lane squares = sum_of(d, t.width, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      hwy::Prefetch(next_row + i);
      const auto v = load(d, x + i, count);
      return hn::Mul(v, v);
    });
    const Lane inverse_rms =
        1 / std::sqrt(squares / static_cast<Lane>(t.width) + static_cast<Lane>(t.epsilon));
    const auto scale = hn::Set(d, inverse_rms);
    for_each_vector(d, t.width, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      const auto normal = hn::Mul(load(d, x + i, count), scale);
      store(hn::Mul(normal, load(d, weight + i, count)), d, y + i, count);
    });
    t.inverse_rms[row] = inverse_rms;
  }
}

// With n = x inverse_rms and g = dy weight: dx += inverse_rms (g - n * mean of (g n));
// dweight += dy n.
template <typename T>
void backward(const RmsNormBackward<T>& t, ComputeType<T>* dweight, std::int64_t begin,
              std::int64_t end) {
  using Lane = ComputeType<T>;
  const VectorsOf<T> d;
  std::fill_n(dweight, t.width, Lane{0});
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = t.x + row * t.width;
    const T* const dy = t.dy + row * t.width;
    const T* const weight = t.weight;
    T* const dx = t.dx + row * t.width;
    const auto scale = hn::Set(d, t.inverse_rms[row]);
    auto sum_gn = hn::Zero(d);
    // Past the end of the row dy is loaded as 0, so nothing is added there.
    for_each_vector(d, t.width, [&](std::int64_t i, std::int64_t count) HWY_ATTR {
      const auto normal = hn::Mul(load(d, x + i, count), scale);
      const auto dy_i = load(d, dy + i, count);
      sum_gn = hn::MulAdd(hn::Mul(dy_i, load(d, weight + i, count)), normal, sum_gn);
      store(hn::MulAdd(dy_i, normal, load(d, dweight + i, count)), d, dweight + i, count);
    });
    const auto mean_gn = hn::Div(hn::SumOfLanes(d, sum_gn), hn::Set(d, static_cast<Lane>(t.width)));
    for_each_vector(d, t.width, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      const auto normal = hn::Mul(load(d, x + i, count), scale);
      const auto g = hn::Mul(load(d, dy + i, count), load(d, weight + i, count));
      const auto along = hn::Sub(g, hn::Mul(normal, mean_gn));
      store(hn::MulAdd(along, scale, load(d, dx + i, count)), d, dx + i, count);
    });
  }
}

template <typename T>
constexpr RmsNormKernels<T> kernels{forward<T>, backward<T>};

}  // namespace

const ByFloatingType<RmsNormKernels>* rms_norm_table() {
  static constexpr ByFloatingType<RmsNormKernels> table{kernels<double>, kernels<float>,
                                                        kernels<bf16>, kernels<f16>};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(rms_norm_table);

const ByFloatingType<RmsNormKernels>& rms_norm_kernels() {
  return *HWY_DYNAMIC_DISPATCH(rms_norm_table)();
}

}  // namespace ringworld
#endif
