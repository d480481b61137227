#include "runtime/cpu/fingerprint.h"

#include <cstddef>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/fingerprint.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

constexpr std::size_t states = 16;
constexpr std::size_t stride = states * sizeof(std::uint64_t);
constexpr std::uint32_t multiplier = 0x9e3779b1u;  // odd

// Takes a word into a state: x = state ^ word, then (lower half of x) * multiplier + (upper half of
// x), and the halves change places, so that each is multiplied in turn. For a given state this
// permutes the words and for a given word the states, so one changed word always changes the
// result.
template <class D>
HWY_INLINE hn::Vec<D> absorb(D d, hn::Vec<D> state, hn::Vec<D> word) {
  const auto x = hn::Xor(state, word);
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t bits = hn::GetLane(x);
  const std::uint64_t sum = (bits & 0xffffffffu) * multiplier + (bits & 0xffffffff00000000u);
  return hn::Set(d, sum >> 32 | sum << 32);
#else
  const hn::Repartition<std::uint32_t, D> halves;
  const auto product = hn::MulEven(hn::BitCast(halves, x), hn::Set(halves, multiplier));
  const auto sum = hn::Add(product, hn::And(x, hn::Set(d, 0xffffffff00000000u)));
  return hn::BitCast(d, hn::Shuffle2301(hn::BitCast(halves, sum)));
#endif
}

// Sixteen states take the words in turn: a single one would wait for its product at every word.
void absorb_all(std::uint64_t* state, const std::byte* bytes, std::size_t strides) {
  const hn::CappedTag<std::uint64_t, 8> d;
  constexpr std::size_t n = hn::MaxLanes(d);
  hn::Vec<decltype(d)> vectors[states / n];
  for (std::size_t v = 0; v < states / n; ++v) {
    vectors[v] = hn::LoadU(d, state + v * n);
  }
  for (std::size_t i = 0; i < strides; ++i) {
    for (std::size_t v = 0; v < states / n; ++v) {
      std::uint64_t words[n];
      std::memcpy(words, bytes + i * stride + v * sizeof words, sizeof words);
      vectors[v] = absorb(d, vectors[v], hn::LoadU(d, words));
    }
  }
  for (std::size_t v = 0; v < states / n; ++v) {
    hn::StoreU(vectors[v], d, state + v * n);
  }
}

}  // namespace

using AbsorbAll = void (*)(std::uint64_t* state, const std::byte* bytes, std::size_t strides);
AbsorbAll find_absorb_all() {
  return absorb_all;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {
namespace {

// A full product, for the few steps before and after.
std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
  const std::uint64_t product = (state ^ word) * 0x9e3779b97f4a7c15u;
  return product ^ (product >> 29);
}

HWY_EXPORT(find_absorb_all);

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  constexpr std::size_t states = 16;
  constexpr std::size_t stride = states * sizeof(std::uint64_t);
  const auto absorb_all = HWY_DYNAMIC_DISPATCH(find_absorb_all)();
  std::uint64_t state[states];
  for (std::size_t s = 0; s < states; ++s) {
    state[s] = mix(seed, s + 1);
  }
  const std::size_t strides = bytes.size() / stride;
  absorb_all(state, bytes.data(), strides);
  std::byte rest[stride] = {};
  if (bytes.size() % stride != 0) {
    std::memcpy(rest, bytes.data() + strides * stride, bytes.size() % stride);
  }
  absorb_all(state, rest, 1);
  std::uint64_t hash = mix(seed, bytes.size());
  for (const std::uint64_t s : state) {
    hash = mix(hash, s);
  }
  return hash;
}

}  // namespace ringworld
#endif
