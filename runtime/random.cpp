#include "runtime/random.h"

#include <cmath>
#include <numbers>

#include <Random123/philox.h>

namespace ringworld {
namespace {

// The counter is (purpose, stream, block); one block of Philox4x32 gives two 64-bit numbers.
struct Block {
  std::uint64_t bits[2];
};

Block block_of(const RandomKey& key, std::uint64_t block) {
  const philox4x32_ctr_t counter = {{static_cast<std::uint32_t>(block),
                                     static_cast<std::uint32_t>(block >> 32), key.stream,
                                     static_cast<std::uint32_t>(key.purpose)}};
  const philox4x32_key_t seed = {
      {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)}};
  const philox4x32_ctr_t r = philox4x32(counter, seed);
  return {{static_cast<std::uint64_t>(r[1]) << 32 | r[0],
           static_cast<std::uint64_t>(r[3]) << 32 | r[2]}};
}

double unit_interval(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

std::uint32_t stream_of(std::string_view name) {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  return hash;
}

std::uint64_t random_bits(const RandomKey& key, std::uint64_t index) {
  return block_of(key, index / 2).bits[index % 2];
}

double random_uniform(const RandomKey& key, std::uint64_t index) {
  return unit_interval(random_bits(key, index));
}

// Box and Muller: elements 2k and 2k + 1 are the cosine and the sine of one pair of uniforms.
double random_normal(const RandomKey& key, std::uint64_t index) {
  const Block block = block_of(key, index / 2);
  const double radius = std::sqrt(-2 * std::log1p(-unit_interval(block.bits[0])));
  const double angle = 2 * std::numbers::pi * unit_interval(block.bits[1]);
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace ringworld
