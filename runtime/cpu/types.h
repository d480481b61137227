// The C++ types of elements, and the types in which kernels compute.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/dtype.h"

namespace ringworld {

template <typename T>
inline constexpr bool is_16_bit_float = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

// The type in which elements of T are computed and sums are kept: f32 for the 16-bit formats.
template <typename T>
using ComputeType = std::conditional_t<is_16_bit_float<T>, float, T>;

template <typename T>
ComputeType<T> widen_element(T value) {
  if constexpr (is_16_bit_float<T>) {
    return to_float(value);
  } else {
    return value;
  }
}

// Calls f.operator()<T>() with the C++ type of a floating dtype.
template <typename F>
decltype(auto) with_floating_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f.template operator()<double>();
    case DType::bf16:
      return f.template operator()<bf16>();
    case DType::f16:
      return f.template operator()<f16>();
    default:
      return f.template operator()<float>();
  }
}

// The same for any dtype.
template <typename F>
decltype(auto) with_any_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i64:
      return f.template operator()<std::int64_t>();
    case DType::i32:
      return f.template operator()<std::int32_t>();
    case DType::i8:
      return f.template operator()<std::int8_t>();
    default:
      return with_floating_type(dtype, f);
  }
}

// A set of kernels for each floating type: what the file of one kind exports, once per instruction
// set. `Kernels<T>` is a struct of function pointers.
template <template <typename> class Kernels>
struct ByFloatingType {
  Kernels<double> f64;
  Kernels<float> f32;
  Kernels<ringworld::bf16> brain16;
  Kernels<ringworld::f16> half16;

  template <typename T>
  constexpr const Kernels<T>& of() const {
    if constexpr (std::is_same_v<T, double>) {
      return f64;
    } else if constexpr (std::is_same_v<T, float>) {
      return f32;
    } else if constexpr (std::is_same_v<T, ringworld::bf16>) {
      return brain16;
    } else {
      return half16;
    }
  }
};

}  // namespace ringworld
