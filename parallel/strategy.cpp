#include "parallel/strategy.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/ddp.h"
#include "parallel/sharded.h"
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
  WideSum gradient_squares() override { return squares_of_counted(backend_, shards_); }

  Tensor full_value(const Parameter& parameter) override { return parameter.value; }
  Tensor full_gradient(const Parameter& parameter) override { return parameter.gradient; }
  Bytes expected_traffic(int) const override { return Bytes(0); }
  Copies expected_copies() const override { return {}; }

 private:
  Backend& backend_;
  std::vector<Shard> shards_;
};

// Nothing: the strategy shards nothing.
std::optional<ShardingDegree> degree_of(std::string_view strategy) {
  if (strategy == "zero1") {
    return ShardingDegree::optimizer;
  }
  if (strategy == "zero2") {
    return ShardingDegree::gradients;
  }
  if (strategy == "zero3" || strategy == "fsdp") {
    return ShardingDegree::parameters;
  }
  return std::nullopt;
}

std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) {
      all.push_back(d);
    }
  }
  return all;
}

}  // namespace

WideSum squares_of_counted(Backend& backend, const std::vector<Shard>& shards) {
  WideSum squares;
  for (const Shard& shard : shards) {
    const Parameter& p = *shard.parameter;
    if (!p.counted && p.gradient_sum == GradientSum::end_stages) {
      continue;  // the sum that its other copy has
    }
    const WideSum own = backend.sum_of_squares(shard.gradient);
    if (p.counted || !std::isfinite(own.value())) {
      squares += own;
    }
  }
  return squares;
}

std::unique_ptr<Strategy> make_single_process(Model& model, Backend& backend, std::uint64_t seed) {
  return std::make_unique<SingleProcess>(model, backend, seed);
}

std::vector<std::string> strategy_names() {
  return {"ddp", "zero1", "zero2", "zero3", "fsdp"};
}

std::string_view name_of(ReduceGradients when) {
  static constexpr std::string_view names[] = {"auto", "once", "every-micro-batch"};
  return names[static_cast<std::size_t>(when)];
}

bool reduces_every_micro_batch(const StrategyOptions& options) {
  const std::optional<ShardingDegree> degree = degree_of(options.name);
  return options.reduce_gradients == ReduceGradients::every_micro_batch ||
         (options.reduce_gradients == ReduceGradients::automatic && degree &&
          *degree != ShardingDegree::optimizer);
}

std::string refusal(const StrategyOptions& options, int world_size) {
  const std::optional<ShardingDegree> degree = degree_of(options.name);
  const auto only_for = [&](std::string_view option, std::string_view strategies) {
    return fmt::format("{} is for {}; {} {}", option, strategies, options.name,
                       degree ? "does not have that" : "shards nothing");
  };
  if (!degree && options.shard_group != 0) {
    return only_for("--shard-group", "zero1, zero2 and fsdp");
  }
  if (options.reduce_gradients == ReduceGradients::every_micro_batch &&
      (!degree || *degree == ShardingDegree::optimizer)) {
    return fmt::format(
        "--reduce-gradients every-micro-batch is for zero2 and fsdp; {} holds whole gradients "
        "anyway",
        options.name);
  }
  if (degree != ShardingDegree::parameters && !options.reshard_after_forward) {
    return only_for("--reshard-after-forward false", "zero3 and fsdp");
  }
  if (degree != ShardingDegree::parameters && options.offload_parameters) {
    return fmt::format(
        "{} needs all parameters on the device; --offload parameters is for zero3 and fsdp",
        options.name);
  }
  if (options.shard_group != 0 && world_size % options.shard_group != 0) {
    return fmt::format("--shard-group {} does not divide the {} rank{}; use one of {}",
                       options.shard_group, world_size, world_size == 1 ? "" : "s",
                       fmt::join(divisors(world_size), ", "));
  }
  return {};
}

std::unique_ptr<Strategy> make_strategy(const StrategyOptions& options, Model& model,
                                        Backend& backend, Communicator& communicator,
                                        std::uint64_t seed, const Tiers& tiers) {
  const std::vector<std::string> names = strategy_names();
  if (std::ranges::find(names, options.name) == names.end()) {
    throw UsageError(fmt::format("unknown strategy '{}'; did you mean '{}'? Known: {}",
                                 options.name, nearest(options.name, names),
                                 fmt::join(names, ", ")));
  }
  if (const std::string why = refusal(options, communicator.world_size()); !why.empty()) {
    throw UsageError(why);
  }
  if (const auto degree = degree_of(options.name)) {
    return std::make_unique<Sharded>(*degree, options, model, backend, communicator, seed, tiers);
  }
  return std::make_unique<Ddp>(model, backend, communicator, options.bucket, seed);
}

}  // namespace ringworld
