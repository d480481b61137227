// One micro-batch on its way through a run of units, forward and back, with what backward needs.
#pragma once

#include <memory>
#include <vector>

#include "models/model.h"
#include "parallel/stage.h"
#include "parallel/strategy.h"

namespace ringworld {

// Sees what passes between units, for whoever looks for a fault or writes tensors down. Tensors are
// valid during the call only.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  // What follows is of this micro-batch, counted from 0, and begins with this unit's forward; on a
  // pipeline stage, which comes back to a micro-batch, also with its backward.
  virtual void before_micro_batch(const Batch& /*batch*/, int /*micro_batch*/, const Unit& /*next*/,
                                  bool /*backward*/) {}
  // y (B, T, C), from the last unit (B * T); not called again where a forward is recomputed.
  virtual void after_forward(const Unit& unit, const Tensor& y) = 0;
  // dx (B, T, C), undefined from the first unit. The gradients of the unit's parameters hold what
  // this rank has added to them since they were zero, and are not reduced yet.
  virtual void after_backward(const Unit& unit, const Tensor& dx) = 0;
};

struct MicroBatchOptions {
  // Recomputation (Chen et al., 2016): of every `checkpoint` units only the first one's input is
  // kept in forward, and backward runs their forward again. 1: every unit's input; 0: everything is
  // kept. Where the whole chain is on one rank, the last group of units is kept whole: its backward
  // follows at once.
  std::int64_t checkpoint = 0;
  UnitObserver* observer = nullptr;
};

// What all passes of a step have in common; everything outlives them.
struct PassContext {
  const Model& model;
  Backend& backend;
  Strategy& strategy;
  const Stage& stage;
  const MicroBatchOptions& options;
};

// Units that keep only the first one's input, or, if `keeps`, everything.
struct UnitGroup {
  int first;
  int end;
  bool keeps;
  Tensor input = {};
};
std::vector<UnitGroup> unit_groups(const Stage& stage, const Stage::Chunk& chunk,
                                   std::int64_t checkpoint);

class Pass {
 public:
  Pass(const PassContext& context, const Stage::Chunk& chunk, std::shared_ptr<const Batch> batch,
       int micro_batch);

  const Batch& batch() const { return *batch_; }
  // x (B, T, C), undefined for the first unit of the chain. Returns y (B, T, C), from the last unit
  // of the chain (B * T) losses.
  Tensor forward(Tensor x);
  // dy (B, T, C), undefined for the last unit of the chain. Returns dx, undefined from the first.
  Tensor backward(Tensor dy);
  // The same in two halves: the gradients of weights that are matrix products come in the second.
  Tensor backward_input(Tensor dy);
  void backward_weight();

 private:
  Unit& at(int unit) const { return *of_.model.units()[static_cast<std::size_t>(unit)]; }
  void recompute(UnitGroup& group);

  const PassContext& of_;
  const Stage::Chunk& chunk_;
  const std::shared_ptr<const Batch> batch_;
  const int micro_batch_;
  std::vector<UnitGroup> groups_;  // whose backward is still to come
  Saved saved_;
};

}  // namespace ringworld
