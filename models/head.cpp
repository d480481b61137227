#include "models/head.h"

#include <utility>

namespace ringworld {

Head::Head(std::string name, const Model& model, std::optional<Norm> norm, Linear logits)
    : Unit(std::move(name)), tensor_(model.tensor()), norm_(norm), logits_(logits) {
  if (norm_) {
    parameters_ = norm_->parameters();
  }
  parameters_.push_back(logits_.weight);
  if (logits_.bias != nullptr) {
    parameters_.push_back(logits_.bias);
  }
}

Tensor Head::forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) {
  Tensor input = gather(backend, batch, norm_ ? norm_->forward(backend, x).y : x);  // (B, T, C)
  // (B, T, V')
  const Tensor logits = empty_like(backend, input, logits_.outputs(), Category::activations);
  logits_.forward(backend, logits, input);
  input = {};

  const DType statistics = wide_dtype(x.dtype());
  const Shape rows{logits.shape().rows()};
  const Tensor targets = batch.targets.view(rows);
  Tensor losses = backend.empty(statistics, rows, Category::activations);             // (B * T)
  const Tensor log_sum_exp = backend.empty(statistics, rows, Category::activations);  // (B * T)
  backend.cross_entropy_forward(losses, log_sum_exp, logits, targets, first_class());
  if (first_class()) {
    const Tensor parts = tensor_.stack(backend, log_sum_exp, name());
    backend.cross_entropy_join(losses, log_sum_exp, parts, tensor_.rank(), targets, *first_class(),
                               logits_.outputs());
    tensor_.sum(losses, "loss " + name());
  }

  saved.push(x);            // (B, T, C), or this device's rows
  saved.push(log_sum_exp);  // (B * T)
  saved.push(logits);       // (B, T, V')
  return losses;
}

Tensor Head::backward(Backend& backend, const Batch& batch, const Tensor& /*dy*/, Saved& saved) {
  Tensor dlogits = saved.pop();            // (B, T, V'), the logits until cross_entropy_backward
  const Tensor log_sum_exp = saved.pop();  // (B * T)
  const Tensor x = saved.pop();            // (B, T, C), or this device's rows
  backend.cross_entropy_backward(dlogits, dlogits, batch.targets.view({dlogits.shape().rows()}),
                                 log_sum_exp, batch.gradient_factor, first_class());

  if (!norm_) {
    const Tensor input = gather(backend, batch, x);  // (B, T, C)
    const Tensor dx = empty_like(backend, input, input.shape()[-1], Category::activations);
    return tensor_.reduce(backend, logits_.backward(backend, dx, dlogits, input, saved),
                          Category::activations, name());
  }
  const Norm::Output normalized = norm_->forward(backend, x);
  Tensor input = gather(backend, batch, normalized.y);  // (B, T, C)
  // (B, T, C), takes the place of the norm's output
  const Tensor partial = logits_.backward(backend, input, dlogits, input, saved);
  input = {};
  dlogits = {};  // by far the largest tensor here
  Tensor dx = backend.zeros(x.dtype(), x.shape(), Category::activations);  // as x
  norm_->backward(backend, dx, tensor_.reduce(backend, partial, Category::workspace, name()), x,
                  normalized);
  return dx;
}

}  // namespace ringworld
