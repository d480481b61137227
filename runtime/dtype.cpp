#include "runtime/dtype.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  bool floating;
};

constexpr DTypeInfo table[] = {
    {DType::f64, "f64", true}, {DType::f32, "f32", true},  {DType::bf16, "bf16", true},
    {DType::f16, "f16", true}, {DType::i64, "i64", false}, {DType::i32, "i32", false},
    {DType::i8, "i8", false},
};

const DTypeInfo& info(DType dtype) {
  return table[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::string_view name_of(DType dtype) {
  return info(dtype).name;
}
bool is_floating(DType dtype) {
  return info(dtype).floating;
}

DType parse_dtype(std::string_view text) {
  std::string known;
  for (const DTypeInfo& row : table) {
    if (row.name == text) {
      return row.dtype;
    }
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  throw UsageError(fmt::format("unknown data type '{}'; known: {}", text, known));
}

float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    // Truncation alone could clear the whole mantissa and make an infinity of it.
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
  }
  const std::uint32_t half_minus_odd = 0x7fff + ((bits >> 16) & 1);
  return {static_cast<std::uint16_t>((bits + half_minus_odd) >> 16)};
}

float to_float(f16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1f;
  const std::uint32_t mantissa = value.bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide_exponent = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << 13);
}

f16 to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return {static_cast<std::uint16_t>(sign | 0x7e00)};  // NaN
  }
  if (magnitude >= 0x477ff000) {
    return {static_cast<std::uint16_t>(sign | 0x7c00)};  // rounds to 65536 or more: infinity
  }
  if (magnitude < 0x38800000) {
    // Below 2^-14 the spacing is 2^-24, and nearbyint rounds to nearest even.
    const float steps = std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24));
    return {static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(steps))};
  }
  const std::uint32_t rebased = magnitude - ((127u - 15u) << 23);
  const std::uint32_t half_minus_odd = 0xfff + ((rebased >> 13) & 1);
  return {static_cast<std::uint16_t>(sign | ((rebased + half_minus_odd) >> 13))};
}

}  // namespace ringworld
