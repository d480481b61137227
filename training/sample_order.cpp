#include "training/sample_order.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "runtime/random.h"

namespace ringworld {

SampleOrder::SampleOrder(std::uint64_t seed, std::int64_t samples)
    : seed_(seed), samples_(samples) {
  if (samples < 1) {
    throw std::invalid_argument("an order needs at least one sample");
  }
  const int bits = std::bit_width(static_cast<std::uint64_t>(samples) - 1);
  half_bits_ = std::max(1, (bits + 1) / 2);
}

// A Feistel network (Luby and Rackoff, 1988): each round adds to the left half a random function of
// the right half and swaps the two. Whatever that function is, the round can be undone, so the
// whole is a permutation of [0, 4^half_bits) without a table in memory.
std::uint64_t SampleOrder::permute(std::uint32_t epoch, std::uint64_t x) const {
  constexpr std::uint64_t rounds = 8;
  const RandomKey key{seed_, Purpose::data_order, epoch};
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = x >> half_bits_;
  std::uint64_t right = x & mask;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t next = left ^ (random_bits(key, round << 32 | right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::int64_t SampleOrder::at(std::int64_t position) const {
  const auto epoch = static_cast<std::uint32_t>(position / samples_);
  auto x = static_cast<std::uint64_t>(position % samples_);
  // Cycle walking (Black and Rogaway, 2002): the network permutes up to four times as many numbers
  // as there are samples. Going on until one in [0, N) comes is a permutation of [0, N): each lies
  // on a cycle, and the walk ends at the next of them on it.
  do {
    x = permute(epoch, x);
  } while (x >= static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(x);
}

}  // namespace ringworld
