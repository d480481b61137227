#include "runtime/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

TEST(DType, NamesAreReadBack) {
  for (const DType dtype : all_dtypes) {
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  }
  EXPECT_THROW(parse_dtype("fp8"), UsageError);
}

TEST(DType, Sizes) {
  EXPECT_EQ(size_of(DType::f64), Bytes(8));
  EXPECT_EQ(size_of(DType::bf16), Bytes(2));
  EXPECT_EQ(size_of(DType::i8), Bytes(1));
}

// Every pattern of 16 bits is a value, and narrowing what it widens to gives it back.
TEST(Bf16, EveryPatternSurvivesAFloat) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const bf16 value{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(wide))));
    } else {
      EXPECT_EQ(to_bf16(wide).bits, bits);
    }
  }
}

TEST(F16, EveryPatternSurvivesAFloat) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const f16 value{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(wide))));
    } else {
      EXPECT_EQ(to_f16(wide).bits, bits);
    }
  }
}

// Between two neighbours the nearer wins, and the middle goes to the even one.
TEST(F16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = to_float(f16{static_cast<std::uint16_t>(bits)});
    const float high = to_float(f16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = low + (high - low) / 2;  // exact: a float has 13 more bits
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(to_f16(middle).bits, even);
    ASSERT_EQ(to_f16(std::nextafter(middle, 0.f)).bits, bits);
    ASSERT_EQ(to_f16(std::nextafter(middle, high)).bits, bits + 1);
    ASSERT_EQ(to_f16(-middle).bits, even | 0x8000);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const float low = to_float(bf16{static_cast<std::uint16_t>(bits)});
    const float middle = std::bit_cast<float>(std::bit_cast<std::uint32_t>(low) | 0x8000u);
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(to_bf16(middle).bits, even);
    ASSERT_EQ(to_bf16(std::nextafter(middle, 0.f)).bits, bits);
    ASSERT_EQ(to_bf16(std::nextafter(middle, INFINITY)).bits, bits + 1);
  }
}

TEST(F16, Limits) {
  EXPECT_EQ(to_float(to_f16(65504.f)), 65504.f);
  EXPECT_EQ(to_float(to_f16(65519.99f)), 65504.f);
  EXPECT_TRUE(std::isinf(to_float(to_f16(65520.f))));
  EXPECT_EQ(to_float(to_f16(0x1p-24f)), 0x1p-24f);
  EXPECT_EQ(to_float(to_f16(0x1p-25f)), 0.f);
  EXPECT_TRUE(std::isinf(to_float(to_f16(std::numeric_limits<float>::infinity()))));
}

}  // namespace
}  // namespace ringworld
