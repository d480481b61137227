// Optimizers: from gradients to new parameters, over the shards that this rank updates.
//
// The state belongs to the optimizer, strategies only hand it shards. Where a shard's value has the
// gradient's dtype, it is updated in place. In mixed precision the value is bf16 or f16 and the
// gradient f32; then the optimizer keeps a master copy of the value in f32, updates that, and casts
// it to the value (Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.1).
#pragma once

#include <memory>
#include <vector>

#include "parallel/strategy.h"
#include "training/offload.h"
#include "training/update_rule.h"

namespace ringworld {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update of every shard from its gradient, which is first multiplied with `gradient_scale`
  // (clipping). The gradients stay as they are.
  virtual void step(double learning_rate, double gradient_scale = 1) = 0;
  // Since the optimizer was made, its making included; nothing where all is on the device.
  virtual OffloadTraffic traffic() const { return {}; }
};

// Allocates the state, charged to Category::optimizer: what UpdateRule keeps, and a master where
// the value's dtype is not the gradient's. `shards` and `backend` must outlive the optimizer; the
// shards' views may change between steps, their number, order, sizes and dtypes may not.
//
// With `offload`, state is charged to Category::optimizer of the tier that holds it, and host
// memory for blocks on their way to its workspace; the results are the same bits. Where a tier
// fails in the middle of a step (DataError), some shards have been updated and others have not, and
// every later step fails as that one did.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const std::vector<Shard>& shards, Backend& backend,
                                          const OffloadOptions& offload = {});

// The dtype of a shard's gradient, states and master: f64 beside f64 values, f32 beside f32, and
// the gradient's own beside 16 bits, f32 where it has none yet.
DType state_dtype(const Shard& shard);

// What gradients of this global norm are multiplied with so that the norm is at most `max_norm`:
// min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does. max_norm 0: no clipping.
double clip_scale(double norm, double max_norm);

}  // namespace ringworld
