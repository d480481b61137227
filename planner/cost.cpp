#include "planner/cost.h"

#include <fmt/format.h>

namespace ringworld {

std::string_view name_of(EfficiencyCase which) {
  constexpr std::string_view names[] = {"low", "expected", "high"};
  return names[static_cast<std::size_t>(which)];
}

double efficiency(EfficiencyCase which) {
  switch (which) {
    case EfficiencyCase::low:
      return effective_training_time / (1 + largest_validated_error);
    case EfficiencyCase::expected:
      return effective_training_time;
    case EfficiencyCase::high:
      return 1;
  }
  return 1;
}

std::string_view reason_of(EfficiencyCase which) {
  constexpr std::string_view reasons[] = {
      "as expected, and steps 18 % slower than planned: the worst left-out row of those that plan "
      "validate holds to limits; FSDP on H100 took up to 44 % longer than planned",
      "0.9 of the time is steps: Llama 3 (arXiv 2407.21783), section 3.3.4, reports more than 90 %",
      "nothing but steps, as planned"};
  return reasons[static_cast<std::size_t>(which)];
}

Cost cost_of(const CostQuestion& q, EfficiencyCase which) {
  Cost cost;
  cost.hours = q.tokens / (q.tokens_per_second * efficiency(which)) / 3600;
  cost.gpu_hours = cost.hours * static_cast<double>(q.gpus);
  if (q.price > 0) {
    cost.dollars = cost.gpu_hours * q.price;
  }
  if (q.watts > 0) {
    cost.kilowatt_hours = cost.gpu_hours * q.watts / 1000 * q.overhead;
  }
  return cost;
}

Constant watts_of_gpu(const Machine& machine) {
  if (machine.node_power.value > 0) {
    return {machine.node_power.value / machine.gpus_per_node.value,
            fmt::format("the node's most, by GPU: {}", machine.node_power.source)};
  }
  if (machine.power.value > 0) {
    return {machine.power.value, fmt::format("of the accelerator alone: {}", machine.power.source)};
  }
  return {0, "unknown"};
}

}  // namespace ringworld
