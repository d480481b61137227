#include "runtime/cpu/checks.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

namespace ringworld {

void fail_check(std::string_view verb, std::string_view expected,
                std::initializer_list<const Tensor*> tensors) {
  std::string found;
  for (const Tensor* tensor : tensors) {
    found += found.empty() ? "" : ", ";
    found += tensor->defined()
                 ? fmt::format("{} {}", name_of(tensor->dtype()), to_string(tensor->shape()))
                 : "undefined";
  }
  throw std::invalid_argument(fmt::format("{}: expected {}, got {}", verb, expected, found));
}

void check_floating(std::string_view verb, std::initializer_list<const Tensor*> tensors) {
  const DType dtype = (*tensors.begin())->dtype();
  const bool fits = std::all_of(tensors.begin(), tensors.end(), [&](const Tensor* tensor) {
    return tensor->defined() && tensor->dtype() == dtype;
  });
  check(fits && is_floating(dtype), verb, "one floating dtype", tensors);
}

bool is_maybe_wide(const Tensor& x, DType dtype) {
  return x.defined() && (x.dtype() == dtype || x.dtype() == wide_dtype(dtype));
}

void check_elementwise(std::string_view verb, std::initializer_list<const Tensor*> tensors) {
  check_floating(verb, tensors);
  const std::int64_t elements = (*tensors.begin())->elements();
  const bool fits = std::all_of(tensors.begin(), tensors.end(), [&](const Tensor* tensor) {
    return tensor->elements() == elements;
  });
  check(fits, verb, "equal element counts", tensors);
}

}  // namespace ringworld
