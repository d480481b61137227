#include "parallel/strategy.h"

#include <cmath>

#include <fmt/format.h>

#include "parallel/ddp.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

class SingleProcess : public Strategy {
 public:
  SingleProcess(Model& model, Backend& backend, std::uint64_t seed) : backend_(backend) {
    for (const auto& p : model.parameters()) {
      p->value = backend.empty(model.dtype(), p->shape, Category::parameters);
      p->gradient = backend.empty(gradient_dtype(model.dtype()), p->shape, Category::gradients);
      initialize(backend, *p, p->value, 0, seed);
      shards_.push_back({p.get(), 0, p->value, p->gradient});
    }
  }

  std::string_view name() const override { return "single"; }

  void begin_step(int) override {
    for (const Shard& shard : shards_) {
      backend_.fill(shard.gradient, 0);
    }
  }
  void after_backward(int, int) override {}
  void finish_gradients() override {}

  const std::vector<Shard>& shards() const override { return shards_; }
  double gradient_norm() override {
    WideSum squares;
    for (const Shard& shard : shards_) {
      squares += backend_.sum_of_squares(shard.gradient);
    }
    return std::sqrt(squares.value());
  }

  Tensor full_value(const Parameter& parameter) override { return parameter.value; }
  Tensor full_gradient(const Parameter& parameter) override { return parameter.gradient; }
  Bytes expected_gradient_traffic() const override { return Bytes(0); }

 private:
  Backend& backend_;
  std::vector<Shard> shards_;
};

}  // namespace

std::unique_ptr<Strategy> make_single_process(Model& model, Backend& backend, std::uint64_t seed) {
  return std::make_unique<SingleProcess>(model, backend, seed);
}

std::vector<std::string> strategy_names() {
  return {"ddp"};
}

std::unique_ptr<Strategy> make_strategy(const StrategyOptions& options, Model& model,
                                        Backend& backend, Communicator& communicator,
                                        std::uint64_t seed) {
  if (options.name == "ddp") {
    return std::make_unique<Ddp>(model, backend, communicator, options.bucket, seed);
  }
  const std::vector<std::string> names = strategy_names();
  throw UsageError(fmt::format("unknown strategy '{}'; did you mean '{}'? Known: {}", options.name,
                               nearest(options.name, names), fmt::join(names, ", ")));
}

}  // namespace ringworld
