// A strategy distributes the training of a model over ranks: it owns the memory of parameters and
// gradients, and acts between the units of backward.
//
// One optimizer step is: begin_step; for each micro-batch run_micro_batch (micro_batch.h), which
// tells the strategy after every unit's backward; finish_gradients; then the optimizer over
// shards().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "models/model.h"

namespace ringworld {

// A piece of a parameter that this rank updates: the whole of it where nothing is sharded.
struct Shard {
  const Parameter* parameter = nullptr;
  std::int64_t first_element = 0;  // within the parameter
  Tensor value;                    // (elements of the shard)
  Tensor gradient;                 // (elements of the shard), in gradient_dtype of the model's
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;

  // Before a step: gradients become zero. `micro_batches` is how many this rank runs.
  virtual void begin_step(int micro_batches) = 0;
  // After the backward of unit `unit` (its index in the chain) of micro-batch `micro_batch` (from
  // 0).
  virtual void after_backward(int unit, int micro_batch) = 0;
  // Afterwards the gradients are the sums over all ranks and micro-batches.
  virtual void finish_gradients() = 0;

  virtual const std::vector<Shard>& shards() const = 0;
  // Square root of the sum of squares of the whole model's gradient, the same on every rank.
  virtual double gradient_norm() = 0;

  // The whole tensors, for comparing and saving; every rank calls.
  virtual Tensor full_value(const Parameter& parameter) = 0;
  virtual Tensor full_gradient(const Parameter& parameter) = 0;

  // What all ranks together send for gradients in one optimizer step, by theory.
  virtual Bytes expected_gradient_traffic() const = 0;
};

struct StrategyOptions {
  std::string name = "ddp";
  // DDP: gradients are reduced in buckets of about this size.
  Bytes bucket{25 << 20};
};

// Binds memory to the model's parameters, gives them their initial values for `seed`, and makes
// sure that every rank starts with the same. Throws UsageError for an unknown name, with the
// nearest.
std::unique_ptr<Strategy> make_strategy(const StrategyOptions& options, Model& model,
                                        Backend& backend, Communicator& communicator,
                                        std::uint64_t seed);

// The control: one process, nothing distributed, a tensor for each parameter and gradient.
std::unique_ptr<Strategy> make_single_process(Model& model, Backend& backend, std::uint64_t seed);

std::vector<std::string> strategy_names();

}  // namespace ringworld
