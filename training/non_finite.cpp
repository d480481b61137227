#include "training/non_finite.h"

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "parallel/micro_batch.h"
#include "runtime/error.h"
#include "training/broadcast_text.h"

namespace ringworld {
namespace {

// Remembers the first tensor that is not finite. It looks on only: every rank must go through the
// whole step, since a strategy communicates on the way.
class FirstNonFinite final : public UnitObserver {
 public:
  explicit FirstNonFinite(Backend& backend) : backend_(backend) {}

  void before_micro_batch(const Batch& /*batch*/, int micro_batch, const Unit& /*next*/,
                          bool /*backward*/) override {
    micro_batch_ = micro_batch;
  }
  const std::optional<std::string>& found() const { return found_; }

  void after_forward(const Unit& unit, const Tensor& y) override {
    for (const Parameter* p : unit.parameters()) {
      look(p->value, [&] { return fmt::format("parameter {}", p->name); });
    }
    look(y, [&] { return fmt::format("the output of {} in forward", unit.name()); });
  }
  void after_backward(const Unit& unit, const Tensor& dx) override {
    for (const Parameter* p : unit.parameters()) {
      look(p->gradient, [&] { return fmt::format("the gradient of {} in backward", p->name); });
    }
    look(dx,
         [&] { return fmt::format("the gradient that {} passes down in backward", unit.name()); });
  }

 private:
  template <typename Describe>
  void look(const Tensor& x, Describe describe) {
    if (!found_ && x.defined() && !std::isfinite(backend_.sum_of_squares(x).value())) {
      found_ = fmt::format("{}, micro-batch {}", describe(), micro_batch_ + 1);
    }
  }

  Backend& backend_;
  int micro_batch_ = 0;
  std::optional<std::string> found_;
};

}  // namespace

void throw_non_finite(const Model& model, Backend& backend, Strategy& strategy, const Mesh& mesh,
                      const Stage& stage, std::span<const HostBatch> micro_batches,
                      std::int64_t step, const GradientStep& result, std::string_view note) {
  Communicator& communicator = mesh.world();
  FirstNonFinite first(backend);
  const int count = static_cast<int>(micro_batches.size());
  const auto on_device = [&](int micro_batch) {
    Batch batch = upload(backend, micro_batches[static_cast<std::size_t>(micro_batch)]);
    batch.gradient_factor = result.loss_scale * result.gradient_factor();
    return batch;
  };
  strategy.begin_step(count);
  run_micro_batches(model, backend, strategy, stage, count, on_device, {.observer = &first});
  strategy.finish_gradients();

  const std::int64_t none = communicator.world_size();
  const std::int64_t rank = communicator.all_reduce_value(
      first.found() ? static_cast<std::int64_t>(communicator.rank()) : none, ReduceOp::min,
      "first non-finite rank");
  const auto number = [](double x) { return std::isnan(x) ? "nan" : fmt::format("{}", x); };
  const std::string what =
      fmt::format("step {}: loss {}, gradient norm {}{}", step, number(result.loss),
                  number(result.gradient_norm), note.empty() ? "" : fmt::format(" {}", note));
  if (rank == none) {
    throw NumericalError(
        what +
        "; no rank finds a tensor that is not finite on its own, so the sum over ranks "
        "overflowed; lower --learning-rate or use --precision f64");
  }
  const std::string_view remedy =
      result.loss_scale > 1
          ? "use --loss-scaling dynamic or a smaller --loss-scale, or lower --learning-rate"
          : "lower --learning-rate, raise --warmup-steps or set --clip-norm";
  throw NumericalError(fmt::format(
      "{}; first tensor that is not finite: rank {}, {}; {}", what, rank,
      broadcast_text(communicator, first.found().value_or(""), static_cast<int>(rank)), remedy));
}

}  // namespace ringworld
