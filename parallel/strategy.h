// A strategy distributes the training of a model over ranks: it owns the memory of parameters and
// gradients, and acts between the units of forward and backward.
//
// One optimizer step is: begin_step; for each micro-batch run_micro_batch (micro_batch.h), which
// tells the strategy before and after every unit; finish_gradients; begin_update; the optimizer
// over shards(); finish_update.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "models/model.h"
#include "runtime/tiers.h"

namespace ringworld {

// A piece of a parameter that this rank updates: the whole of it where nothing is sharded.
struct Shard {
  const Parameter* parameter = nullptr;
  std::int64_t first_element = 0;  // within the parameter
  // (elements of the shard), in the model's dtype; in host memory where parameters are offloaded
  Tensor value;
  Tensor gradient;  // (elements of the shard), in gradient_dtype of it
};

// Once per optimizer step, or after every micro-batch, which keeps gradients sharded meanwhile.
enum class ReduceGradients : std::uint8_t { automatic, once, every_micro_batch };
inline constexpr ReduceGradients all_reduce_gradients[] = {
    ReduceGradients::automatic, ReduceGradients::once, ReduceGradients::every_micro_batch};
std::string_view name_of(ReduceGradients when);  // "auto", "once", "every-micro-batch"

// How often the whole model's parameters, gradients and optimizer state exist over all ranks,
// between steps.
struct Copies {
  int parameters = 1;
  int gradients = 1;
  int optimizer = 1;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;

  // Before a step: gradients become zero. `micro_batches` is how many this rank runs.
  virtual void begin_step(int micro_batches) = 0;

  // Around a unit (its index in the chain): in between, its parameters have values, and in backward
  // gradients to add to. `micro_batch` counts from 0. A unit's forward may run a second time
  // before its backward, where activations are recomputed.
  virtual void before_forward(int /*unit*/) {}
  virtual void after_forward(int /*unit*/) {}
  virtual void before_recompute(int /*unit*/) {}
  virtual void before_backward(int /*unit*/, int /*micro_batch*/) {}
  // Nobody needs the values any more before the next forward or backward of the unit.
  virtual void after_backward_input(int /*unit*/) {}
  // The gradients of the micro-batch are all there: at once after the above, or, where a pipeline
  // splits backward, later.
  virtual void after_backward(int unit, int micro_batch) = 0;
  // After a forward that no backward follows.
  virtual void after_evaluation() {}

  // Afterwards the gradients of the shards are the sums over all ranks and micro-batches.
  virtual void finish_gradients() = 0;
  // Before the optimizer: the shards' values are there to be changed.
  virtual void begin_update() {}
  // After the optimizer: the shards' new values are everybody's.
  virtual void finish_update() {}

  virtual const std::vector<Shard>& shards() const = 0;
  // Of the gradients of the parameters that this rank's model counts (Parameter::counted), the sum
  // of squares over all ranks of the strategy; the same on each of them.
  virtual WideSum gradient_squares() = 0;
  // Of a model that is whole on every rank: the norm of its gradient.
  double gradient_norm() { return std::sqrt(gradient_squares().value()); }

  // The whole tensors, for comparing and saving; every rank calls.
  virtual Tensor full_value(const Parameter& parameter) = 0;
  virtual Tensor full_gradient(const Parameter& parameter) = 0;

  // What all ranks together send for gradients and parameters in one optimizer step of so many
  // micro-batches, by theory. The calls' labels begin with "gradients" and "parameters".
  virtual Bytes expected_traffic(int micro_batches) const = 0;
  virtual Copies expected_copies() const = 0;
};

// Of this rank's shards; not finite, either, if a gradient is not that another rank counts: then
// only this rank's copy is spoiled, and all are to know.
WideSum squares_of_counted(Backend& backend, const std::vector<Shard>& shards);

struct StrategyOptions {
  std::string name = "ddp";
  // DDP: gradients are reduced in buckets of about this size.
  Bytes bucket{25 << 20};
  // Of the others: see sharded.h.
  ReduceGradients reduce_gradients = ReduceGradients::automatic;
  bool reshard_after_forward = true;
  int prefetch = 1;     // units
  int shard_group = 0;  // ranks; 0: all
  // Shards of parameters wait in a tier for their gathers (ZeRO-Infinity).
  bool offload_parameters = false;
};

// Whether gradients are reduced after every micro-batch, and not once in a step.
bool reduces_every_micro_batch(const StrategyOptions& options);

// What speaks against this strategy with these options on so many ranks; empty: nothing.
std::string refusal(const StrategyOptions& options, int world_size);

// Binds memory to the model's parameters, gives them their initial values for `seed`, and makes
// sure that every rank starts with the same. Throws UsageError for an unknown name, with the
// nearest, and for what refusal() refuses. Parameters are offloaded to the file among `tiers`, else
// to the host.
std::unique_ptr<Strategy> make_strategy(const StrategyOptions& options, Model& model,
                                        Backend& backend, Communicator& communicator,
                                        std::uint64_t seed, const Tiers& tiers = {});

// The control: one process, nothing distributed, a tensor for each parameter and gradient.
std::unique_ptr<Strategy> make_single_process(Model& model, Backend& backend, std::uint64_t seed);

std::vector<std::string> strategy_names();

}  // namespace ringworld
