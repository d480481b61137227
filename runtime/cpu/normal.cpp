#include "runtime/cpu/normal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/normal.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// What random_normal (runtime/random.cpp) computes, for a vector of blocks at once; it stays the
// definition. Box and Muller make two normals of a block's two uniforms.
#if HWY_TARGET == HWY_SCALAR

HWY_INLINE UniformPair normal_pair(const RandomKey& key, std::uint64_t first_block) {
  const Doubles d;
  return {hn::Set(d, random_normal(key, 2 * first_block)),
          hn::Set(d, random_normal(key, 2 * first_block + 1))};
}

#else

HWY_INLINE UniformPair normal_pair(const RandomKey& key, std::uint64_t first_block) {
  const Doubles d;
  const UniformPair u = uniform_pair(key, first_block);
  // 1 - u is exact, as both are multiples of 2^-53.
  const auto one_minus_u = hn::Sub(hn::Set(d, 1.0), u.even);
  const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), hn::Log(d, one_minus_u)));
  const auto angle = hn::Mul(hn::Set(d, 2 * 3.14159265358979323846), u.odd);
  return {hn::Mul(radius, hn::Cos(d, angle)), hn::Mul(radius, hn::Sin(d, angle))};
}

#endif

template <typename T>
void normal(T* out, const RandomKey& key, std::uint64_t first_index, std::int64_t n, double mean,
            double deviation) {
  const Doubles d;
  const auto vector_mean = hn::Set(d, mean);
  const auto vector_deviation = hn::Set(d, deviation);
  for_each_pair(
      first_index, n,
      [&](std::uint64_t first_block) HWY_ATTR { return normal_pair(key, first_block); },
      [&](std::int64_t first, std::int64_t numbers, const double* x) HWY_ATTR {
        T* const y = out + first;
        for_each_vector(d, numbers, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
          const auto v = hn::MulAdd(load(d, x + i, count), vector_deviation, vector_mean);
          store(v, d, y + i, count);
        });
      });
}

}  // namespace

const ByFloatingType<NormalKernels>* normal_table() {
  static constexpr ByFloatingType<NormalKernels> table{
      {normal<double>}, {normal<float>}, {normal<bf16>}, {normal<f16>}};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(normal_table);

const ByFloatingType<NormalKernels>& normal_kernels() {
  return *HWY_DYNAMIC_DISPATCH(normal_table)();
}

}  // namespace ringworld
#endif
