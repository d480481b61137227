// What an optimizer does to elements, wherever they are: how many states it keeps of each, and one
// update. The resident and the offloaded optimizer share it, so that both compute the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/backend.h"

namespace ringworld {

enum class OptimizerKind : std::uint8_t { adamw, sgd };
inline constexpr OptimizerKind all_optimizer_kinds[] = {OptimizerKind::adamw, OptimizerKind::sgd};
std::string_view name_of(OptimizerKind kind);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9;         // AdamW: decay of the first moment
  double beta2 = 0.95;        // AdamW: decay of the second moment
  double epsilon = 1e-8;      // AdamW: added to the root of the second moment
  double momentum = 0.9;      // SGD
  double weight_decay = 0.1;  // decoupled; for parameters with `decay` only
};

// What changes from step to step.
struct UpdateStep {
  double learning_rate = 0;
  double gradient_scale = 1;  // multiplies the gradient first
  std::int64_t number = 1;    // counts from 1
};

class UpdateRule {
 public:
  explicit UpdateRule(const OptimizerOptions& options) : options_(options) {}

  // Tensors of state for each tensor of parameters: AdamW (Loshchilov and Hutter, ICLR 2019) keeps
  // two moments, SGD a velocity unless the momentum is 0. They begin as zero.
  int states() const;

  // master -= ..., and its states (as many as states(), of as many elements) follow. All are of one
  // dtype and on `backend`'s device; the gradient stays as it is. `decay`: the parameter takes
  // weight decay.
  void apply(Backend& backend, const Tensor& master, std::span<const Tensor> states,
             const Tensor& gradient, bool decay, const UpdateStep& step) const;

 private:
  OptimizerOptions options_;
};

}  // namespace ringworld
