// The last unit of a language model: a layer norm if there is one, the logits, and the loss.
#pragma once

#include <optional>

#include "models/layers.h"

namespace ringworld {

// Saved for a token, in elements: x C, logits V and one log-sum-exp. In backward the logits become
// their own gradient.
class Head : public Unit {
 public:
  // `logits`'s weight is (V, C); it may be another unit's parameter too (tied).
  Head(std::string name, std::optional<LayerNorm> norm, Linear logits);

  Tensor forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) override;
  Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy, Saved& saved) override;

 private:
  std::optional<LayerNorm> norm_;
  Linear logits_;
};

}  // namespace ringworld
