#include "training/optimizer.h"

#include <algorithm>

#include "training/offloaded_optimizer.h"

namespace ringworld {
namespace {

// All state is on the device, beside the shards.
class ResidentOptimizer final : public Optimizer {
 public:
  ResidentOptimizer(const OptimizerOptions& options, const std::vector<Shard>& shards,
                    Backend& backend)
      : rule_(options), shards_(shards), backend_(backend) {
    for (const Shard& shard : shards) {
      State state;
      const DType dtype = state_dtype(shard);
      const Shape shape = shard.value.shape();
      if (shard.value.dtype() != dtype) {
        state.master = backend.empty(dtype, shape, Category::optimizer);
        backend.cast(state.master, shard.value);
      }
      for (int i = 0; i < rule_.states(); ++i) {
        state.states.push_back(backend.zeros(dtype, shape, Category::optimizer));
      }
      states_.push_back(std::move(state));
    }
  }

  void step(double learning_rate, double gradient_scale) override {
    const UpdateStep step{learning_rate, gradient_scale, ++steps_};
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const Shard& shard = shards_[i];
      const State& state = states_[i];
      const Tensor& master = state.master.defined() ? state.master : shard.value;
      rule_.apply(backend_, master, state.states, shard.gradient, shard.parameter->decay, step);
      if (state.master.defined()) {
        backend_.cast(shard.value, state.master);
      }
    }
  }

 private:
  struct State {  // of one shard, as many elements each
    Tensor master;
    std::vector<Tensor> states;
  };

  const UpdateRule rule_;
  const std::vector<Shard>& shards_;
  Backend& backend_;
  std::vector<State> states_;  // as the shards
  std::int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const std::vector<Shard>& shards, Backend& backend,
                                          const OffloadOptions& offload) {
  if (offload.level != OffloadLevel::none) {
    return make_offloaded_optimizer(options, shards, backend, offload);
  }
  return std::make_unique<ResidentOptimizer>(options, shards, backend);
}

DType state_dtype(const Shard& shard) {
  if (shard.gradient.defined()) {
    return shard.gradient.dtype();
  }
  return shard.value.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

double clip_scale(double norm, double max_norm) {
  if (max_norm <= 0) {
    return 1;
  }
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace ringworld
