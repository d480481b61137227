#include "training/non_finite.h"

#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "runtime/error.h"
#include "training/broadcast_text.h"

namespace ringworld {
namespace {

bool all_finite(Backend& backend, const Tensor& x) {
  return std::isfinite(backend.sum_of_squares(x).value());
}

std::optional<std::string> first_in_micro_batch(const Model& model, Backend& backend,
                                                const HostBatch& host_batch,
                                                double gradient_factor) {
  Batch batch = upload(backend, host_batch);
  batch.gradient_factor = gradient_factor;
  Saved saved;
  Tensor x;
  for (const auto& unit : model.units()) {
    x = unit->forward(backend, batch, x, saved);
    if (!all_finite(backend, x)) {
      return fmt::format("the output of {} in forward", unit->name());
    }
  }
  Tensor dy;
  for (std::size_t i = model.units().size(); i-- > 0;) {
    Unit& unit = *model.units()[i];
    dy = unit.backward(backend, batch, dy, saved);
    for (const Parameter* p : unit.parameters()) {
      if (!all_finite(backend, p->gradient)) {
        return fmt::format("the gradient of {} in backward", p->name);
      }
    }
    if (dy.defined() && !all_finite(backend, dy)) {
      return fmt::format("the gradient that {} passes down in backward", unit.name());
    }
  }
  return std::nullopt;
}

std::optional<std::string> first_non_finite(const Model& model, Backend& backend,
                                            std::span<const HostBatch> micro_batches,
                                            double gradient_factor) {
  for (const auto& p : model.parameters()) {
    if (!all_finite(backend, p->value)) {
      return "parameter " + p->name;
    }
    backend.fill(p->gradient, 0);
  }
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    if (const auto found =
            first_in_micro_batch(model, backend, micro_batches[i], gradient_factor)) {
      return fmt::format("{}, micro-batch {}", *found, i + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

void throw_non_finite(const Model& model, Backend& backend, Communicator& communicator,
                      std::span<const HostBatch> micro_batches, std::int64_t step,
                      const GradientStep& result, std::string_view note) {
  const auto found =
      first_non_finite(model, backend, micro_batches, result.loss_scale * result.gradient_factor());
  const std::int64_t none = communicator.world_size();
  const std::int64_t rank =
      communicator.all_reduce_value(found ? static_cast<std::int64_t>(communicator.rank()) : none,
                                    ReduceOp::min, "first non-finite rank");
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
  throw NumericalError(fmt::format(
      "{}; first tensor that is not finite: rank {}, {}; lower --learning-rate, raise "
      "--warmup-steps or set --clip-norm",
      what, rank, broadcast_text(communicator, found.value_or(""), static_cast<int>(rank))));
}

}  // namespace ringworld
