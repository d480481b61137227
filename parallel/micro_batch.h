// Forward and backward of one micro-batch over the chain of units.
#pragma once

#include "models/model.h"
#include "parallel/strategy.h"

namespace ringworld {

// Sees what passes between units, for whoever looks for a fault or writes tensors down. Tensors are
// valid during the call only.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  // What follows is of this micro-batch.
  virtual void before_micro_batch(const Batch& /*batch*/) {}
  // y (B, T, C), from the last unit (B * T); not called again where a forward is recomputed.
  virtual void after_forward(const Unit& unit, const Tensor& y) = 0;
  // dx (B, T, C), undefined from the first unit. The gradients of the unit's parameters hold what
  // this rank has added to them since they were zero, and are not reduced yet.
  virtual void after_backward(const Unit& unit, const Tensor& dx) = 0;
};

struct MicroBatchOptions {
  // Recomputation (Chen et al., 2016): of every `checkpoint` units only the first one's input is
  // kept in forward, and backward runs their forward again. 1: every unit's input; 0: everything is
  // kept. The last group of units is kept whole: its backward follows at once.
  std::int64_t checkpoint = 0;
  UnitObserver* observer = nullptr;
};

// Adds the micro-batch's gradients, times batch.gradient_factor, to the parameters' gradients, and
// returns the sum of its tokens' losses. The strategy hears of every unit.
double run_micro_batch(const Model& model, Backend& backend, const Batch& batch, Strategy& strategy,
                       int micro_batch, const MicroBatchOptions& options = {});

// Forward alone: the sum of the tokens' losses, holding one unit's activations at a time.
double evaluate(const Model& model, Backend& backend, const Batch& batch, Strategy& strategy);

}  // namespace ringworld
