// Optimizers: from gradients to new parameters, over the shards that this rank updates.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/strategy.h"

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

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update of every shard from its gradient, which is first multiplied with `gradient_scale`
  // (clipping). The gradients stay as they are.
  virtual void step(double learning_rate, double gradient_scale = 1) = 0;
};

// Allocates the state, zero, in the parameter's dtype (f32 or f64) and charged to
// Category::optimizer: two moments for AdamW, a velocity for SGD unless the momentum is 0. `shards`
// and `backend` must outlive the optimizer; the shards' views may change between steps, their
// number, order and sizes may not.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const std::vector<Shard>& shards, Backend& backend);

// What gradients of this global norm are multiplied with so that the norm is at most `max_norm`:
// min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does. max_norm 0: no clipping.
double clip_scale(double norm, double max_norm);

}  // namespace ringworld
