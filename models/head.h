// The last unit of a language model: a norm if there is one, the logits, and the loss.
#pragma once

#include <optional>

#include "models/layers.h"
#include "models/norm.h"

namespace ringworld {

// Saved for a token, in elements: x C, logits V' and one log-sum-exp. In backward the logits become
// their own gradient. V' are the classes that this device has of the vocabulary; every device
// returns the losses over all of it.
class Head : public Unit {
 public:
  // `logits`'s weight is (V', C); it may be another unit's parameter too (tied). Both are the
  // model's.
  Head(std::string name, const Model& model, std::optional<Norm> norm, Linear logits);

  Tensor forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) override;
  Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy, Saved& saved) override;

  SeamCrossings forward_seams() const override { return {.gathers = 1}; }
  SeamCrossings backward_seams() const override { return {.gathers = 1, .reduces = 1}; }

 private:
  // x, or its norm, as the logits take it: (B, T, C).
  Tensor gather(Backend& backend, const Batch& batch, const Tensor& x) const {
    return tensor_.gather(backend, x, batch.tokens.shape(), name());
  }
  // The first of this device's classes; none where it has all.
  std::optional<std::int64_t> first_class() const {
    const auto& parts = logits_.weight->parts;
    return parts.empty() ? std::nullopt : std::optional(parts.front().first);
  }

  const TensorParallel& tensor_;
  std::optional<Norm> norm_;
  Linear logits_;
};

}  // namespace ringworld
