// Checks of what a verb is called with; a failed one is a bug in the caller.
#pragma once

#include <initializer_list>
#include <string_view>

#include "runtime/tensor.h"

namespace ringworld {

// Throws std::invalid_argument that names the verb and the dtypes and shapes of its tensors,
// outputs first, and says what was expected of them.
[[noreturn]] void fail_check(std::string_view verb, std::string_view expected,
                             std::initializer_list<const Tensor*> tensors);
inline void check(bool condition, std::string_view verb, std::string_view expected,
                  std::initializer_list<const Tensor*> tensors) {
  if (!condition) {
    fail_check(verb, expected, tensors);
  }
}

// Every tensor is defined and of one floating dtype.
void check_floating(std::string_view verb, std::initializer_list<const Tensor*> tensors);

// Whether x is defined and of this floating dtype, or of the wide one for it: what the gradient of
// a parameter may be in a call of `dtype`.
bool is_maybe_wide(const Tensor& x, DType dtype);

// As check_floating, and all have the same number of elements.
void check_elementwise(std::string_view verb, std::initializer_list<const Tensor*> tensors);

// The size of the last axis, 1 for a scalar.
inline std::int64_t width_of(const Tensor& x) {
  return x.shape().axes() == 0 ? 1 : x.shape()[-1];
}

}  // namespace ringworld
