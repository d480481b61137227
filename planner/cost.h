// What training on so many tokens takes: hours, days, dollars and energy, with how sure that is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "planner/hardware.h"

namespace ringworld {

enum class EfficiencyCase : std::uint8_t { low, expected, high };
inline constexpr EfficiencyCase all_efficiency_cases[] = {
    EfficiencyCase::low, EfficiencyCase::expected, EfficiencyCase::high};
std::string_view name_of(EfficiencyCase which);

// Of the planned throughput, how much remains over the whole of a training.
// high: nothing but steps, as planned. expected: 0.9 of the time is training, the rest restarts,
// checkpoints and evaluation (Llama 3 reports more than 90 %, arXiv 2407.21783, section 3.3.4).
// low: the plan besides errs by as much as the worst of the validation's rows that were left out of
// the fit.
inline constexpr double effective_training_time = 0.9;
inline constexpr double largest_validated_error = 0.18;
double efficiency(EfficiencyCase which);
std::string_view reason_of(EfficiencyCase which);

struct Cost {
  double hours = 0;
  double gpu_hours = 0;
  std::optional<double> dollars = {};         // empty: no price is known
  std::optional<double> kilowatt_hours = {};  // empty: no power is known

  double days() const { return hours / 24; }
};

struct CostQuestion {
  double tokens = 0;
  double tokens_per_second = 0;  // of all GPUs, in a step
  std::int64_t gpus = 0;
  double price = 0;       // dollars per hour and GPU; 0: unknown
  double watts = 0;       // of one GPU and its share of the node; 0: unknown
  double overhead = 1.1;  // of the building: all power over that of the computers (PUE)
};
Cost cost_of(const CostQuestion& question, EfficiencyCase which);

// Watts of one GPU and its share of the node, at most, and who says so; 0 where nobody does.
Constant watts_of_gpu(const Machine& machine);

}  // namespace ringworld
