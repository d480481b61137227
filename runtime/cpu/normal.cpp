#include "runtime/cpu/normal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/normal.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// What random_normal (runtime/random.cpp) computes, for a vector of blocks at once; it stays the
// definition. A block of Philox gives two uniforms, and Box and Muller make two normals of them.
using Doubles = hn::ScalableTag<double>;
constexpr std::int64_t batch = 2 * static_cast<std::int64_t>(hn::MaxLanes(Doubles()));

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void normal_batch(double* out, const RandomKey& key, std::uint64_t first_block) {
  out[0] = random_normal(key, 2 * first_block);
  out[1] = random_normal(key, 2 * first_block + 1);
}

#else

using Words = hn::RebindToUnsigned<Doubles>;
using WordVector = hn::Vec<Words>;

// 32-bit words, each in a 64-bit lane of its own, in which its products with another have room.
struct Block {
  WordVector word[4];
};

HWY_INLINE WordVector multiply(WordVector a, std::uint32_t b) {
  const hn::Repartition<std::uint32_t, Words> d32;
  return hn::MulEven(hn::BitCast(d32, a), hn::Set(d32, b));
}

// Ten rounds of Philox4x32 (Salmon et al., SC11, section 3.3).
HWY_INLINE Block philox(Block x, std::uint64_t seed) {
  const Words d;
  const auto low = hn::Set(d, 0xffffffffu);
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto product0 = multiply(x.word[0], 0xd2511f53u);
    const auto product1 = multiply(x.word[2], 0xcd9e8d57u);
    const auto mixed0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), x.word[1]), hn::Set(d, key0));
    const auto mixed2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), x.word[3]), hn::Set(d, key1));
    x = {{mixed0, hn::And(product1, low), mixed2, hn::And(product0, low)}};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return x;
}

// The upper 53 of the 64 bits (high, low) as a number in [0, 1).
HWY_INLINE hn::Vec<Doubles> unit_interval(WordVector low, WordVector high) {
  const Doubles d;
  const hn::RebindToSigned<Words> integers;
  const auto bits = hn::ShiftRight<11>(hn::Or(hn::ShiftLeft<32>(high), low));
  return hn::Mul(hn::ConvertTo(d, hn::BitCast(integers, bits)), hn::Set(d, 0x1p-53));
}

HWY_INLINE void normal_batch(double* out, const RandomKey& key, std::uint64_t first_block) {
  const Doubles d;
  const Words words;
  const auto block = hn::Add(hn::Set(words, first_block), hn::Iota(words, 0));
  const Block r = philox(
      {{hn::And(block, hn::Set(words, 0xffffffffu)), hn::ShiftRight<32>(block),
        hn::Set(words, key.stream), hn::Set(words, static_cast<std::uint32_t>(key.purpose))}},
      key.seed);
  // 1 - u is exact, as both are multiples of 2^-53.
  const auto one_minus_u = hn::Sub(hn::Set(d, 1.0), unit_interval(r.word[0], r.word[1]));
  const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), hn::Log(d, one_minus_u)));
  const auto angle =
      hn::Mul(hn::Set(d, 2 * 3.14159265358979323846), unit_interval(r.word[2], r.word[3]));
  hn::StoreInterleaved2(hn::Mul(radius, hn::Cos(d, angle)), hn::Mul(radius, hn::Sin(d, angle)), d,
                        out);
}

#endif

template <typename T>
void normal(T* out, const RandomKey& key, std::uint64_t first_index, std::int64_t n, double mean,
            double deviation) {
  const Doubles d;
  const auto vector_mean = hn::Set(d, mean);
  const auto vector_deviation = hn::Set(d, deviation);
  HWY_ALIGN double values[batch];
  // The first batch starts at the block of the first element, which may be the second of its block.
  const auto skipped = static_cast<std::int64_t>(first_index % 2);
  for (std::int64_t begin = -skipped; begin < n; begin += batch) {
    normal_batch(values, key, (first_index + static_cast<std::uint64_t>(begin)) / 2);
    const std::int64_t from = std::max<std::int64_t>(begin, 0);
    const std::int64_t to = std::min(begin + batch, n);
    const double* const x = values + (from - begin);
    T* const y = out + from;
    for_each_vector(d, to - from, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      const auto v = hn::MulAdd(load(d, x + i, count), vector_deviation, vector_mean);
      store(v, d, y + i, count);
    });
  }
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
