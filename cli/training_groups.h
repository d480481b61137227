// Options that train and verify have in common: declared once.
#pragma once

#include <limits>
#include <string>

#include "cli/option_set.h"
#include "cli/options.h"

namespace ringworld {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr Interval positive{0, infinity, false, false};
inline constexpr Interval not_negative{0, infinity, true, false};
inline constexpr Interval fraction{0, 1};
inline constexpr Interval fraction_below_one{0, 1, true, false};

void declare_model(OptionSet& set, ModelOptions& model);
// What decides, beside the strategy, what each rank holds between steps.
void declare_sharding(OptionSet& set, StrategyOptions& strategy);
// Beside which strategy; declare_sharding's options are among them.
void declare_strategy(OptionSet& set, StrategyOptions& strategy, ResourceOptions& resources);
Recomputation parse_recomputation(const OptionSet& set, const std::string& text);
// Beside what is offloaded, and where to.
void declare_offload(OptionSet& set, OffloadSettings& offload);
DType parse_precision(const OptionSet& set, const std::string& text);
// The numbers that optimizers take; which optimizer is each command's own option.
void declare_optimizer_numbers(OptionSet& set, OptimizerOptions& optimizer, double& clip_norm);
void declare_seed(OptionSet& set, std::uint64_t& seed);

}  // namespace ringworld
