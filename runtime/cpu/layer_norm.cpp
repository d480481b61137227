#include "runtime/cpu/layer_norm.h"

#include <cmath>

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias. A row stays in the first-level cache
// over the three passes, so the variance can be taken around the mean, where it does not cancel.
// The next row is fetched meanwhile.
template <typename T>
void forward(const LayerNormForward<T>& t, std::int64_t begin, std::int64_t end) {
  using Lane = ComputeType<T>;
  const VectorsOf<T> d;
  const auto width = static_cast<Lane>(t.width);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = t.x + row * t.width;
    T* const y = t.y + row * t.width;
    const T* const next_row = x + t.width;
    const Lane sum = sum_of(d, t.width, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      return load(d, x + i, count);
    });
    const Lane mean = sum / width;
    const auto vector_mean = hn::Set(d, mean);
    const Lane squares = sum_of(d, t.width, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      hwy::Prefetch(next_row + i);
      const auto centered = hn::Sub(load(d, x + i, count), vector_mean);
      return hn::Mul(centered, centered);
    });
    const Lane variance = squares / width;
    const Lane inverse_deviation = 1 / std::sqrt(variance + static_cast<Lane>(t.epsilon));
    const auto scale = hn::Set(d, inverse_deviation);
    const T* const weight = t.weight;
    const T* const bias = t.bias;
    for_each_vector(d, t.width, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      const auto normal = hn::Mul(hn::Sub(load(d, x + i, count), vector_mean), scale);
      store(hn::MulAdd(normal, load(d, weight + i, count), load(d, bias + i, count)), d, y + i,
            count);
    });
    t.mean[row] = mean;
    t.inverse_deviation[row] = inverse_deviation;
  }
}

// With n = (x - mean) * inverse_deviation and g = dy * weight:
// dx += inverse_deviation * (g - mean of g - n * mean of (g n)); dweight += dy n; dbias += dy.
template <typename T>
void backward(const LayerNormBackward<T>& t, ComputeType<T>* sums, std::int64_t begin,
              std::int64_t end) {
  using Lane = ComputeType<T>;
  const VectorsOf<T> d;
  Lane* const dweight = sums;
  Lane* const dbias = sums + t.width;
  std::fill_n(sums, 2 * t.width, Lane{0});
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = t.x + row * t.width;
    const T* const dy = t.dy + row * t.width;
    const T* const weight = t.weight;
    T* const dx = t.dx + row * t.width;
    const auto mean = hn::Set(d, t.mean[row]);
    const auto scale = hn::Set(d, t.inverse_deviation[row]);
    auto sum_g = hn::Zero(d);
    auto sum_gn = hn::Zero(d);
    // Past the end of the row dy is loaded as 0, so nothing is added there.
    for_each_vector(d, t.width, [&](std::int64_t i, std::int64_t count) HWY_ATTR {
      const auto normal = hn::Mul(hn::Sub(load(d, x + i, count), mean), scale);
      const auto dy_i = load(d, dy + i, count);
      const auto g = hn::Mul(dy_i, load(d, weight + i, count));
      sum_g = hn::Add(sum_g, g);
      sum_gn = hn::MulAdd(g, normal, sum_gn);
      store(hn::MulAdd(dy_i, normal, load(d, dweight + i, count)), d, dweight + i, count);
      store(hn::Add(dy_i, load(d, dbias + i, count)), d, dbias + i, count);
    });
    const auto width = hn::Set(d, static_cast<Lane>(t.width));
    const auto mean_g = hn::Div(hn::SumOfLanes(d, sum_g), width);
    const auto mean_gn = hn::Div(hn::SumOfLanes(d, sum_gn), width);
    for_each_vector(d, t.width, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      const auto normal = hn::Mul(hn::Sub(load(d, x + i, count), mean), scale);
      const auto g = hn::Mul(load(d, dy + i, count), load(d, weight + i, count));
      const auto centered = hn::Sub(hn::Sub(g, mean_g), hn::Mul(normal, mean_gn));
      store(hn::MulAdd(centered, scale, load(d, dx + i, count)), d, dx + i, count);
    });
  }
}

template <typename T>
void add_sums(T* out, const ComputeType<T>* sums, std::int64_t parts, std::int64_t stride,
              std::int64_t width) {
  const VectorsOf<T> d;
  for_each_vector(d, width, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    auto total = load(d, sums + i, count);
    for (std::int64_t part = 1; part < parts; ++part) {
      total = hn::Add(total, load(d, sums + part * stride + i, count));
    }
    store(hn::Add(load(d, out + i, count), total), d, out + i, count);
  });
}

template <typename T>
constexpr LayerNormKernels<T> kernels{forward<T>, backward<T>, add_sums<T>};

}  // namespace

const ByFloatingType<LayerNormKernels>* layer_norm_table() {
  static constexpr ByFloatingType<LayerNormKernels> table{kernels<double>, kernels<float>,
                                                          kernels<bf16>, kernels<f16>};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(layer_norm_table);

const ByFloatingType<LayerNormKernels>& layer_norm_kernels() {
  return *HWY_DYNAMIC_DISPATCH(layer_norm_table)();
}

}  // namespace ringworld
#endif
