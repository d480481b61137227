// Uniform random numbers, a vector at a time: what random_uniform (runtime/random.cpp) computes;
// it stays the definition. Included once for each instruction set, as simd-inl.h is.
#if defined(RINGWORLD_RUNTIME_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGWORLD_RUNTIME_CPU_PHILOX_INL_H_
#undef RINGWORLD_RUNTIME_CPU_PHILOX_INL_H_
#else
#define RINGWORLD_RUNTIME_CPU_PHILOX_INL_H_
#endif

#include "runtime/cpu/simd-inl.h"
#include "runtime/random.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {

using Doubles = hn::ScalableTag<double>;

// A block of Philox gives two numbers; a pair of vectors holds those of as many blocks.
struct UniformPair {
  hn::Vec<Doubles> even;  // of the indices 2 block
  hn::Vec<Doubles> odd;   // of the indices 2 block + 1
};
inline constexpr std::int64_t uniform_batch =
    2 * static_cast<std::int64_t>(hn::MaxLanes(Doubles()));

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE UniformPair uniform_pair(const RandomKey& key, std::uint64_t first_block) {
  const Doubles d;
  return {hn::Set(d, random_uniform(key, 2 * first_block)),
          hn::Set(d, random_uniform(key, 2 * first_block + 1))};
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

HWY_INLINE UniformPair uniform_pair(const RandomKey& key, std::uint64_t first_block) {
  const Words words;
  const auto block = hn::Add(hn::Set(words, first_block), hn::Iota(words, 0));
  const Block r = philox(
      {{hn::And(block, hn::Set(words, 0xffffffffu)), hn::ShiftRight<32>(block),
        hn::Set(words, key.stream), hn::Set(words, static_cast<std::uint32_t>(key.purpose))}},
      key.seed);
  return {unit_interval(r.word[0], r.word[1]), unit_interval(r.word[2], r.word[3])};
}

#endif

// body(i, count, values) for batches of [0, n), where values[0, count) come from the pair that
// `make(first_block)` returns for the indices first_index + i and on. The first batch starts at
// the block of the first element, which may be the second of its block.
template <class Make, class Body>
HWY_INLINE void for_each_pair(std::uint64_t first_index, std::int64_t n, Make make, Body body) {
  const Doubles d;
  HWY_ALIGN double values[uniform_batch];
  const auto skipped = static_cast<std::int64_t>(first_index % 2);
  for (std::int64_t begin = -skipped; begin < n; begin += uniform_batch) {
    const UniformPair pair = make((first_index + static_cast<std::uint64_t>(begin)) / 2);
    hn::StoreInterleaved2(pair.even, pair.odd, d, values);
    const std::int64_t from = std::max<std::int64_t>(begin, 0);
    const std::int64_t to = std::min(begin + uniform_batch, n);
    body(from, to - from, values + (from - begin));
  }
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the toggling guard
