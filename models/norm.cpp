#include "models/norm.h"

#include "models/layers.h"

namespace ringworld {

std::vector<Parameter*> Norm::parameters() const {
  if (bias == nullptr) {
    return {weight};
  }
  return {weight, bias};
}

Norm::Output Norm::forward(Backend& backend, const Tensor& x) const {
  const DType statistics = wide_dtype(x.dtype());
  const Shape rows{x.shape().rows()};
  Output output{.y = empty_like(backend, x, x.shape()[-1], Category::workspace),
                .mean = {},
                .inverse_deviation = backend.empty(statistics, rows, Category::workspace)};
  if (bias == nullptr) {
    backend.rms_norm_forward(output.y, output.inverse_deviation, x, weight->value, epsilon);
  } else {
    output.mean = backend.empty(statistics, rows, Category::workspace);
    backend.layer_norm_forward(output.y, output.mean, output.inverse_deviation, x, weight->value,
                               bias->value, epsilon);
  }
  return output;
}

void Norm::backward(Backend& backend, const Tensor& dx, const Tensor& dy, const Tensor& x,
                    const Output& output) const {
  if (bias == nullptr) {
    backend.rms_norm_backward(dx, weight->gradient, dy, x, weight->value, output.inverse_deviation);
  } else {
    backend.layer_norm_backward(dx, weight->gradient, bias->gradient, dy, x, weight->value,
                                output.mean, output.inverse_deviation);
  }
}

Norm add_layer_norm(Model& model, const std::string& name, std::int64_t width) {
  Norm norm = add_rms_norm(model, name, width);
  norm.bias = model.add_parameter(
      {.name = name + ".bias", .shape = {width}, .decay = false, .normalizes = true});
  return norm;
}

Norm add_rms_norm(Model& model, const std::string& name, std::int64_t width) {
  return {.weight = model.add_parameter({.name = name + ".weight",
                                         .shape = {width},
                                         .decay = false,
                                         .mean = 1,
                                         .normalizes = true}),
          .bias = nullptr};
}

}  // namespace ringworld
