#include "runtime/random.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

// The known answer of Philox4x32-10 for a counter and key of zeros (Random123's kat_vectors).
TEST(Random, IsPhilox) {
  const RandomKey zero{0, static_cast<Purpose>(0), 0};
  EXPECT_EQ(random_bits(zero, 0), 0xe169c58d6627e8d5ull);
  EXPECT_EQ(random_bits(zero, 1), 0x9b00dbd8bc57ac4cull);
}

TEST(Random, DependsOnEveryPartOfItsKey) {
  const RandomKey key{7, Purpose::initial_weights, 3};
  std::set<std::uint64_t> seen{random_bits(key, 0), random_bits(key, 1), random_bits(key, 2)};
  seen.insert(random_bits({8, Purpose::initial_weights, 3}, 0));
  seen.insert(random_bits({7, Purpose::data_order, 3}, 0));
  seen.insert(random_bits({7, Purpose::initial_weights, 4}, 0));
  seen.insert(random_bits({7ull << 32, Purpose::initial_weights, 3}, 0));
  seen.insert(random_bits(key, 1ull << 40));
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(random_bits(key, 5), random_bits(key, 5));
}

TEST(Random, StreamsOfNamesDiffer) {
  EXPECT_NE(stream_of("h.0.ln_1.weight"), stream_of("h.1.ln_1.weight"));
  EXPECT_EQ(stream_of("wte.weight"), stream_of("wte.weight"));
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  const RandomKey key{1, Purpose::synthetic_data, 0};
  constexpr int n = 200'000;
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  double uniform = 0;
  for (int i = 0; i < n; ++i) {
    const double x = random_normal(key, static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    const double u = random_uniform(key, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    uniform += u;
  }
  // Five deviations of each estimate.
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(uniform / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
}

}  // namespace
}  // namespace ringworld
