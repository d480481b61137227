// Element types of tensors, and the two 16-bit formats as C++ types.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "runtime/bytes.h"

namespace ringworld {

enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, i8 };

inline constexpr DType all_dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                       DType::i64, DType::i32, DType::i8};

inline Bytes size_of(DType dtype) {  // of one element
  constexpr std::int64_t sizes[] = {8, 4, 2, 2, 8, 4, 1};
  return Bytes(sizes[static_cast<std::size_t>(dtype)]);
}
std::string_view name_of(DType dtype);  // "f64", "bf16", ...
bool is_floating(DType dtype);
// The dtype in which sums and statistics of tensors of `dtype` are kept: f64 for f64, else f32.
// The contracts' "f32/f64".
inline DType wide_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}
// The dtype of the gradients of parameters of `dtype`: a 16-bit accumulator would soon be too
// coarse for what it is added (1 + 2^-9 is 1 in bf16), so it is the wide one.
inline DType gradient_dtype(DType dtype) {
  return wide_dtype(dtype);
}
// Throws UsageError that lists the known types.
DType parse_dtype(std::string_view text);

// bfloat16: the upper half of an f32, rounded to nearest even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits = 0;
};

// IEEE 754 binary16, rounded to nearest even, with subnormals and infinities.
struct f16 {
  std::uint16_t bits = 0;
};

float to_float(bf16 value);
float to_float(f16 value);
bf16 to_bf16(float value);
f16 to_f16(float value);

}  // namespace ringworld
