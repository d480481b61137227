#include "training/sample_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < order.samples(); ++i) {
    samples.push_back(order.at(epoch * order.samples() + i));
  }
  return samples;
}

TEST(SampleOrder, EveryEpochIsAPermutation) {
  std::vector<std::int64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {997, 1009, 1023, 1024, 1025, 4095, 4096, 4097, 65536, 65537, 100'003});
  for (const std::int64_t n : sizes) {
    const SampleOrder order(7, n);
    for (const std::int64_t epoch : {0, 1, 12345}) {
      auto samples = epoch_of(order, epoch);
      std::sort(samples.begin(), samples.end());
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(samples[static_cast<std::size_t>(i)], i) << n << " samples, epoch " << epoch;
      }
    }
  }
}

TEST(SampleOrder, IsAFunctionOfSeedAndEpochAlone) {
  const SampleOrder order(3, 1000);
  EXPECT_EQ(epoch_of(order, 2), epoch_of(SampleOrder(3, 1000), 2));
  EXPECT_NE(epoch_of(order, 2), epoch_of(order, 3));
  EXPECT_NE(epoch_of(order, 2), epoch_of(SampleOrder(4, 1000), 2));
}

// Over many epochs each sample comes equally often at each place: chi-squared with (n - 1)^2
// degrees of freedom has that mean and a variance of twice it, and six deviations are not chance.
TEST(SampleOrder, EverySampleComesEverywhere) {
  for (const std::int64_t n : {2, 3, 5, 7, 16}) {
    const SampleOrder order(1, n);
    const std::int64_t epochs = 200 * n;
    std::vector<double> counts(static_cast<std::size_t>(n * n));
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto samples = epoch_of(order, epoch);
      for (std::int64_t i = 0; i < n; ++i) {
        ++counts[static_cast<std::size_t>(i * n + samples[static_cast<std::size_t>(i)])];
      }
    }
    const double expected = static_cast<double>(epochs) / static_cast<double>(n);
    double chi_squared = 0;
    for (const double count : counts)
      chi_squared += (count - expected) * (count - expected) / expected;
    const auto freedom = static_cast<double>((n - 1) * (n - 1));
    EXPECT_LT(chi_squared, freedom + 6 * std::sqrt(2 * freedom)) << n;
  }
}

TEST(SampleOrder, NeighboursAreTornApart) {
  const SampleOrder order(1, 10'000);
  const auto samples = epoch_of(order, 0);
  const auto adjacent = [&] {
    int pairs = 0;
    for (std::size_t i = 1; i < samples.size(); ++i)
      pairs += samples[i] == samples[i - 1] + 1;
    return pairs;
  };
  EXPECT_LT(adjacent(), 12);  // one is expected; the identity would have 9999
}

TEST(SampleOrder, RefusesAnEmptyDataSet) {
  EXPECT_THROW(SampleOrder(1, 0), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
