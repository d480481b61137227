#include "models/tensor_parallel.h"

#include <stdexcept>

namespace ringworld {
namespace {

void check_alone(const TensorParallel& tensor) {
  if (tensor.is_split()) {
    throw std::logic_error("TensorParallel: devices of a group that cannot reach each other");
  }
}

}  // namespace

Tensor TensorParallel::gather(Backend& /*backend*/, const Tensor& x, const Shape& /*tokens*/,
                              const std::string& /*label*/) const {
  check_alone(*this);
  return x;
}

Tensor TensorParallel::reduce(Backend& /*backend*/, Tensor partial, Category /*category*/,
                              const std::string& /*label*/) const {
  check_alone(*this);
  return partial;
}

Tensor TensorParallel::stack(Backend& /*backend*/, const Tensor& x,
                             const std::string& /*label*/) const {
  check_alone(*this);
  return x.view({1, x.elements()});
}

void TensorParallel::sum(const Tensor& /*x*/, const std::string& /*label*/) const {
  check_alone(*this);
}

}  // namespace ringworld
