#include "models/layers.h"

namespace ringworld {

Tensor empty_like(Backend& backend, const Tensor& x, std::int64_t columns, Category category) {
  return backend.empty(x.dtype(), {x.shape()[0], x.shape()[1], columns}, category);
}

std::vector<Parameter*> Linear::parameters() const {
  if (bias == nullptr) {
    return {weight};
  }
  return {weight, bias};
}

void Linear::forward(Backend& backend, const Tensor& y, const Tensor& x) const {
  if (bias != nullptr) {
    backend.fill_rows(y, bias->value);
  }
  backend.matmul(y, x, weight->value, {.transpose_b = true, .accumulate = bias != nullptr});
}

Tensor Linear::forward_summed(Backend& backend, const TensorParallel& tensor, const Tensor& x,
                              const std::string& label) const {
  // With sequence parallelism the sum is a tensor of its own.
  const Tensor partial =
      empty_like(backend, x, outputs(),
                 tensor.sequence_parallel() ? Category::workspace : Category::activations);
  const Linear own{.weight = weight, .bias = tensor.rank() == 0 ? bias : nullptr};
  own.forward(backend, partial, x);
  return tensor.reduce(backend, partial, Category::activations, label);
}

Tensor Linear::backward(Backend& backend, const Tensor& dx, const Tensor& dy, const Tensor& x,
                        Saved& saved) const {
  if (bias != nullptr) {
    backend.sum_rows(bias->gradient, dy);
  }
  if (!saved.puts_off_weights()) {
    backend.matmul(weight->gradient, dy, x, {.transpose_a = true, .accumulate = true});
    backend.matmul(dx, dy, weight->value);
    return dx;
  }
  saved.put_off(weight, dy, x);
  Tensor own_dx =
      dx.storage() != x.storage() ? dx : backend.empty(x.dtype(), x.shape(), Category::workspace);
  backend.matmul(own_dx, dy, weight->value);
  return own_dx;
}

Linear add_linear(Model& model, const std::string& name, std::int64_t outputs, std::int64_t inputs,
                  const LinearOptions& options) {
  const bool by_outputs = options.split == Split::outputs;
  Linear linear{.weight = model.add_parameter({.name = name + ".weight",
                                               .shape = {outputs, inputs},
                                               .deviation = options.deviation,
                                               .split_axis = by_outputs ? 0 : 1,
                                               .sections = options.sections})};
  if (options.bias) {
    linear.bias = model.add_parameter({.name = name + ".bias",
                                       .shape = {outputs},
                                       .decay = false,
                                       .split_axis = by_outputs ? 0 : -1,
                                       .sections = options.sections});
  }
  return linear;
}

void Dropout::drop(Backend& backend, const Batch& batch, const Tensor& out, const Tensor& x) const {
  backend.dropout(out, x, {*batch.dropout_seed, Purpose::dropout, stream},
                  (batch.first_token + tensor->rows(batch.tokens.elements()).first) * x.shape()[-1],
                  probability);
}

void Dropout::apply(Backend& backend, const Batch& batch, const Tensor& x) const {
  if (drops(batch)) {
    drop(backend, batch, x, x);
  }
}

Tensor Dropout::backward(Backend& backend, const Batch& batch, const Tensor& dy) const {
  if (!drops(batch)) {
    return dy;
  }
  Tensor dx = empty_like(backend, dy, dy.shape()[-1], Category::workspace);
  drop(backend, batch, dx, dy);
  return dx;
}

// (B, T, H), workspace.
Tensor FeedForward::activate(Backend& backend, const Tensor& hidden) const {
  Tensor activated = empty_like(backend, hidden, c_proj.inputs(), Category::workspace);
  if (activation == Activation::swiglu) {
    backend.swiglu_forward(activated, hidden);
  } else {
    backend.gelu_forward(activated, hidden);
  }
  return activated;
}

Tensor FeedForward::forward(Backend& backend, const Tensor& x, Saved& saved,
                            const std::string& label) const {
  // (B, T, H or 2H)
  const Tensor hidden = empty_like(backend, x, c_fc.outputs(), Category::activations);
  c_fc.forward(backend, hidden, x);
  saved.push(hidden);
  return c_proj.forward_summed(backend, *tensor, activate(backend, hidden), label);
}

Tensor FeedForward::backward_to_hidden(Backend& backend, const Tensor& dy, Saved& saved) const {
  const Tensor hidden = saved.pop();  // (B, T, H or 2H)
  // (B, T, H): the activation's output, then its gradient.
  Tensor buffer = activate(backend, hidden);
  buffer = c_proj.backward(backend, buffer, dy, buffer, saved);
  if (activation == Activation::swiglu) {
    backend.swiglu_backward(hidden, buffer, hidden);
    return hidden;
  }
  backend.gelu_backward(buffer, buffer, hidden);
  return buffer;
}

}  // namespace ringworld
