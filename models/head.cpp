#include "models/head.h"

#include <utility>

namespace ringworld {

Head::Head(std::string name, std::optional<LayerNorm> norm, Linear logits)
    : Unit(std::move(name)), norm_(norm), logits_(logits) {
  if (norm_) {
    parameters_ = {norm_->weight, norm_->bias};
  }
  parameters_.push_back(logits_.weight);
  if (logits_.bias != nullptr) {
    parameters_.push_back(logits_.bias);
  }
}

Tensor Head::forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) {
  // (B, T, V)
  const Tensor logits = empty_like(backend, x, logits_.outputs(), Category::activations);
  logits_.forward(backend, logits, norm_ ? norm_->forward(backend, x).y : x);

  const DType statistics = wide_dtype(x.dtype());
  const Shape rows{x.shape().rows()};
  Tensor losses = backend.empty(statistics, rows, Category::activations);             // (B * T)
  const Tensor log_sum_exp = backend.empty(statistics, rows, Category::activations);  // (B * T)
  backend.cross_entropy_forward(losses, log_sum_exp, logits, batch.targets.view(rows));

  saved.push(x);            // (B, T, C)
  saved.push(log_sum_exp);  // (B * T)
  saved.push(logits);       // (B, T, V)
  return losses;
}

Tensor Head::backward(Backend& backend, const Batch& batch, const Tensor& /*dy*/, Saved& saved) {
  Tensor dlogits = saved.pop();            // (B, T, V), the logits until cross_entropy_backward
  const Tensor log_sum_exp = saved.pop();  // (B * T)
  const Tensor x = saved.pop();            // (B, T, C)
  backend.cross_entropy_backward(dlogits, dlogits, batch.targets.view({x.shape().rows()}),
                                 log_sum_exp, batch.gradient_factor);

  if (!norm_) {
    Tensor dx = empty_like(backend, x, x.shape()[-1], Category::activations);  // (B, T, C)
    logits_.backward(backend, dx, dlogits, x);
    return dx;
  }
  const LayerNorm::Output normalized = norm_->forward(backend, x);
  const Tensor& dnormalized = normalized.y;  // (B, T, C), takes the place of the norm's output
  logits_.backward(backend, dnormalized, dlogits, normalized.y);
  dlogits = {};  // by far the largest tensor here
  Tensor dx = backend.zeros(x.dtype(), x.shape(), Category::activations);  // (B, T, C)
  norm_->backward(backend, dx, dnormalized, x, normalized);
  return dx;
}

}  // namespace ringworld
