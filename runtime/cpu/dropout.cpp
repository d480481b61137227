#include "runtime/cpu/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// A pair of uniforms becomes a pair of factors, 1 / (1 - probability) or 0. What is dropped is 0
// even where x is not finite.
template <typename T>
void dropout(T* out, const T* x, const RandomKey& key, std::uint64_t first_index, std::int64_t n,
             double probability) {
  const Doubles d;
  const VectorsOf<T> lanes;
  const auto threshold = hn::Set(d, probability);
  const auto kept = hn::Set(d, 1 / (1 - probability));
  for_each_pair(
      first_index, n,
      [&](std::uint64_t first_block) HWY_ATTR {
        const UniformPair u = uniform_pair(key, first_block);
        return UniformPair{hn::IfThenElseZero(hn::Ge(u.even, threshold), kept),
                           hn::IfThenElseZero(hn::Ge(u.odd, threshold), kept)};
      },
      [&](std::int64_t first, std::int64_t numbers, const double* factors) HWY_ATTR {
        HWY_ALIGN ComputeType<T> narrow[uniform_batch];
        for (std::int64_t i = 0; i < numbers; ++i) {
          narrow[i] = static_cast<ComputeType<T>>(factors[i]);
        }
        const ComputeType<T>* const factor = narrow;
        const T* const from = x + first;
        T* const to = out + first;
        for_each_vector(lanes, numbers, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
          const auto f = load(lanes, factor + i, count);
          const auto product = hn::Mul(load(lanes, from + i, count), f);
          store(hn::IfThenZeroElse(hn::Eq(f, hn::Zero(lanes)), product), lanes, to + i, count);
        });
      });
}

}  // namespace

const ByFloatingType<DropoutKernels>* dropout_table() {
  static constexpr ByFloatingType<DropoutKernels> table{
      {dropout<double>}, {dropout<float>}, {dropout<bf16>}, {dropout<f16>}};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(dropout_table);

const ByFloatingType<DropoutKernels>& dropout_kernels() {
  return *HWY_DYNAMIC_DISPATCH(dropout_table)();
}

}  // namespace ringworld
#endif
