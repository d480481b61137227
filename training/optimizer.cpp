#include "training/optimizer.h"

#include <algorithm>

namespace ringworld {
namespace {

// One zeroed tensor for each shard, in the shard's dtype.
std::vector<Tensor> zeros_like(const std::vector<Shard>& shards, Backend& backend) {
  std::vector<Tensor> state;
  for (const Shard& shard : shards) {
    state.push_back(backend.zeros(shard.value.dtype(), shard.value.shape(), Category::optimizer));
  }
  return state;
}

// Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019).
class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, const std::vector<Shard>& shards, Backend& backend)
      : options_(options),
        shards_(shards),
        backend_(backend),
        first_moments_(zeros_like(shards, backend)),
        second_moments_(zeros_like(shards, backend)) {}

  void step(double learning_rate, double gradient_scale) override {
    ++steps_;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const Shard& shard = shards_[i];
      backend_.adamw(shard.value, first_moments_[i], second_moments_[i], shard.gradient,
                     {.learning_rate = learning_rate,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .epsilon = options_.epsilon,
                      .weight_decay = shard.parameter->decay ? options_.weight_decay : 0,
                      .gradient_scale = gradient_scale,
                      .step = steps_});
    }
  }

 private:
  const OptimizerOptions options_;
  const std::vector<Shard>& shards_;
  Backend& backend_;
  std::vector<Tensor> first_moments_;   // as the shards' values
  std::vector<Tensor> second_moments_;  // as the shards' values
  std::int64_t steps_ = 0;
};

// Stochastic gradient descent with momentum.
class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, const std::vector<Shard>& shards, Backend& backend)
      : options_(options), shards_(shards), backend_(backend) {
    if (options.momentum != 0) {
      velocities_ = zeros_like(shards, backend);
    }
  }

  void step(double learning_rate, double gradient_scale) override {
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const Shard& shard = shards_[i];
      backend_.sgd(shard.value, velocities_.empty() ? Tensor() : velocities_[i], shard.gradient,
                   {.learning_rate = learning_rate,
                    .momentum = options_.momentum,
                    .weight_decay = shard.parameter->decay ? options_.weight_decay : 0,
                    .gradient_scale = gradient_scale});
    }
  }

 private:
  const OptimizerOptions options_;
  const std::vector<Shard>& shards_;
  Backend& backend_;
  std::vector<Tensor> velocities_;  // as the shards' values; none without momentum
};

}  // namespace

std::string_view name_of(OptimizerKind kind) {
  return kind == OptimizerKind::adamw ? "adamw" : "sgd";
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const std::vector<Shard>& shards, Backend& backend) {
  if (options.kind == OptimizerKind::sgd) {
    return std::make_unique<Sgd>(options, shards, backend);
  }
  return std::make_unique<AdamW>(options, shards, backend);
}

double clip_scale(double norm, double max_norm) {
  if (max_norm <= 0) {
    return 1;
  }
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace ringworld
