#include "training/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

void check(bool fits, std::string_view option, double value, std::string_view range) {
  if (!fits) {
    throw UsageError(fmt::format("loss scaling: {} is {}; it must be {}", option, value, range));
  }
}

void check_options(const LossScalerOptions& o) {
  const auto number = [](std::int64_t x) { return static_cast<double>(x); };
  check(o.minimum_scale > 0 && std::isfinite(o.minimum_scale), "the smallest scale",
        o.minimum_scale, "positive");
  check(o.initial_scale >= o.minimum_scale && std::isfinite(o.initial_scale), "the initial scale",
        o.initial_scale, fmt::format("at least the smallest, {}", o.minimum_scale));
  check(o.growth_factor >= 1 && std::isfinite(o.growth_factor), "the growth factor",
        o.growth_factor, "1 or more");
  check(o.backoff_factor > 0 && o.backoff_factor <= 1, "the backoff factor", o.backoff_factor,
        "above 0, and at most 1");
  check(o.growth_window >= 1, "the growth window", number(o.growth_window), "1 step or more");
  check(o.hysteresis >= 1, "the hysteresis", number(o.hysteresis), "1 overflow or more");
  check(o.maximum_skips >= 1, "the number of steps that may be skipped in a row",
        number(o.maximum_skips), "1 or more");
}

}  // namespace

std::string_view name_of(LossScaling mode) {
  constexpr std::string_view names[] = {"none", "static", "dynamic"};
  return names[static_cast<std::size_t>(mode)];
}

LossScaler::LossScaler(const LossScalerOptions& options) : options_(options) {
  if (options.mode == LossScaling::none) {
    return;
  }
  check_options(options);
  state_.scale = options.initial_scale;
  state_.hysteresis_left = options.hysteresis;
}

void LossScaler::update(bool overflow) {
  state_.consecutive_skips = overflow ? state_.consecutive_skips + 1 : 0;
  if (options_.mode != LossScaling::dynamic) {
    return;
  }
  if (overflow) {
    state_.good_steps = 0;
    state_.hysteresis_left = std::max<std::int64_t>(0, state_.hysteresis_left - 1);
    if (state_.hysteresis_left == 0) {
      state_.scale = std::max(options_.minimum_scale, state_.scale * options_.backoff_factor);
    }
    return;
  }
  if (++state_.good_steps == options_.growth_window) {
    state_.good_steps = 0;
    state_.hysteresis_left = options_.hysteresis;
    const double grown = state_.scale * options_.growth_factor;
    state_.scale = std::isfinite(grown) ? grown : state_.scale;
  }
}

}  // namespace ringworld
