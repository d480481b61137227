#include "planner/published_steps.h"

#include <cmath>

#include "planner/flops.h"
#include "planner/memory.h"

namespace ringworld {
namespace {

constexpr double tera = 1e12;

}  // namespace

Machine machine_of(const Machines& machines, const PublishedStep& row) {
  Machine machine = machines.find(row.machine);
  if (row.between > 0) {
    machine.between = {row.between, "as published"};
  }
  return machine;
}

std::size_t best_layout(const PublishedStep& row, const Machine& machine) {
  const Transformer& model = find_transformer(row.model);
  const MemoryOptions options{
      .activations = {.fused_attention = row.software.flash, .dropout = row.software.dropout}};
  std::size_t best = 0;
  double most = -1;
  bool best_fits = false;
  for (std::size_t i = 0; i < row.layouts.size(); ++i) {
    const double bytes = static_cast<double>(
        plan_memory(model, row.layouts[i], options).worst().device.total().value);
    const bool fits = bytes <= machine.memory.value;
    const double value = predict(row, row.layouts[i], machine);
    if ((fits && !best_fits) || (fits == best_fits && value > most)) {
      best = i;
      most = value;
      best_fits = fits;
    }
  }
  return best;
}

double predict(const PublishedStep& row, const Layout& layout, const Machine& machine) {
  const Transformer& model = find_transformer(row.model);
  const double seconds = plan_step(model, layout, machine, row.software).seconds;
  const Throughput reached = throughput(model, layout, machine, row.software, seconds);
  const double each = reached.tokens_per_second / static_cast<double>(layout.gpus());
  switch (row.measure) {
    case ThroughputMeasure::megatron_full_tflops:
      return each *
             model_flops_per_token(model, layout.sequence_length, FlopConvention::megatron_full) /
             tera;
    case ThroughputMeasure::causal_tflops:
      return each * model_flops_per_token(model, layout.sequence_length, FlopConvention::causal) /
             tera;
    case ThroughputMeasure::tokens:
      return each;
  }
  return 0;
}

double fit_sustained(const Machines& machines, const std::vector<FittedRow>& rows) {
  const auto loss = [&](double sustained) {
    double sum = 0;
    for (const FittedRow& fitted : rows) {
      Machine machine = machine_of(machines, *fitted.row);
      machine.sustained.value = sustained;
      const double ratio = predict(*fitted.row, fitted.layout, machine) / fitted.row->value;
      sum += std::log(ratio) * std::log(ratio);
    }
    return sum;
  };
  // Golden section; the loss has one minimum, for every prediction grows with the constant.
  constexpr double golden = 0.6180339887498949;
  double low = 0.3;
  double high = 1;
  double left = high - golden * (high - low);
  double right = low + golden * (high - low);
  double loss_left = loss(left);
  double loss_right = loss(right);
  while (high - low > 1e-3) {
    if (loss_left < loss_right) {
      high = right;
      right = left;
      loss_right = loss_left;
      left = high - golden * (high - low);
      loss_left = loss(left);
    } else {
      low = left;
      left = right;
      loss_left = loss_right;
      right = low + golden * (high - low);
      loss_right = loss(right);
    }
  }
  return (low + high) / 2;
}

}  // namespace ringworld
