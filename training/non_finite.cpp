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

  void begin_micro_batch(std::size_t index) { micro_batch_ = index; }
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
  std::size_t micro_batch_ = 0;
  std::optional<std::string> found_;
};

}  // namespace

void throw_non_finite(const Model& model, Backend& backend, Strategy& strategy,
                      Communicator& communicator, std::span<const HostBatch> micro_batches,
                      std::int64_t step, const GradientStep& result, std::string_view note) {
  FirstNonFinite first(backend);
  strategy.begin_step(static_cast<int>(micro_batches.size()));
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    first.begin_micro_batch(i);
    Batch batch = upload(backend, micro_batches[i]);
    batch.gradient_factor = result.loss_scale * result.gradient_factor();
    run_micro_batch(model, backend, batch, strategy, static_cast<int>(i), {.observer = &first});
  }
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
