// Sums that do not depend on how what they add up was cut.
#include "runtime/wide_sum.h"

#include <algorithm>
#include <map>

#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(WideSum, KeepsWhatAnF64Loses) {
  WideSum sum;
  for (const double x : {1.0, 0x1p60, 0x1p-40, -0x1p60, -1.0}) {
    sum += x;
  }
  EXPECT_EQ(sum.value(), 0x1p-40);
  WideSum square;
  square.add_square(1 + 0x1p-50);
  square += -1;
  square += -0x1p-49;
  EXPECT_EQ(square.value(), 0x1p-100);
}

TEST(WideSum, WhatIsNotFiniteStays) {
  for (const double bad : {infinity, -infinity, std::nan("")}) {
    WideSum sum(3);
    sum += bad;
    sum += -5;
    EXPECT_FALSE(std::isfinite(sum.value())) << bad;
    EXPECT_FALSE(std::isfinite(WideSum(bad).value())) << bad;
  }
}

// Magnitudes over 120 powers of two (24 in f16), so that nearly every addition rounds.
Tensor wide_range(Backend& backend, DType dtype, std::int64_t n) {
  Values values;
  const int spread = dtype == DType::f16 ? 24 : 120;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const auto bits = random_bits({.seed = 5}, index);
    const int exponent = static_cast<int>(bits % static_cast<std::uint64_t>(spread)) - spread / 2;
    values.push_back(std::ldexp(random_normal({.seed = 6}, index), exponent));
  }
  return tensor_of(backend, dtype, Shape{n}, values);
}

// The sum of squares over pieces of about `piece` elements, from the first to the last or back.
double over_pieces(Backend& backend, const Tensor& x, std::int64_t piece, bool backwards) {
  std::vector<Tensor> pieces;
  for (std::int64_t first = 0, count = piece; first < x.elements(); first += count) {
    count = std::min(count % (2 * piece) + 1, x.elements() - first);
    pieces.push_back(x.slice(first, count));
  }
  if (backwards) {
    std::reverse(pieces.begin(), pieces.end());
  }
  WideSum sum;
  for (const Tensor& part : pieces) {
    sum += backend.sum_of_squares(part);
  }
  return sum.value();
}

TEST(WideSum, OfSquaresIsTheSameBitsForEveryCutThreadAndInstructionSet) {
  std::map<DType, double> expected;
  for_each_configuration([&](Backend& backend, DType dtype) {
    const Tensor x = wide_range(backend, dtype, 70001);
    const double whole = backend.sum_of_squares(x).value();
    EXPECT_EQ(expected.emplace(dtype, whole).first->second, whole);
    for (const std::int64_t piece : {1, 7, 64, 1000, 33333}) {
      EXPECT_EQ(over_pieces(backend, x, piece, false), whole) << piece;
      EXPECT_EQ(over_pieces(backend, x, piece, true), whole) << piece;
    }
  });
}

// One element at a time, added as pairs: exact but for the last of some hundred bits.
TEST(WideSum, OfSquaresIsRoundedOnce) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const std::int64_t n : {0, 1, 3, 63, 64, 65, 2048, 2049, 4133}) {
      const Tensor x = wide_range(backend, dtype, n);
      WideSum expected;
      for (const double value : backend.download_values(x)) {
        expected.add_square(value);
      }
      EXPECT_EQ(backend.sum_of_squares(x).value(), expected.value()) << n;
    }
  });
}

TEST(WideSum, OfSquaresShowsWhatIsNotFiniteWhereverItStands) {
  for_each_configuration([](Backend& backend, DType dtype) {
    constexpr std::int64_t n = 4133;
    for (const double bad : {infinity, -infinity, std::nan("")}) {
      for (const std::int64_t at : {std::int64_t{0}, std::int64_t{2047}, n - 1}) {
        const Tensor x = random_tensor(backend, dtype, Shape{n}, 1);
        backend.fill(x.slice(at, 1), bad);
        EXPECT_FALSE(std::isfinite(backend.sum_of_squares(x).value())) << bad << " at " << at;
      }
    }
  });
}

}  // namespace
}  // namespace ringworld
