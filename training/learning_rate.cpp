#include "training/learning_rate.h"

#include <cmath>
#include <numbers>

namespace ringworld {

std::string_view name_of(LearningRateSchedule schedule) {
  return schedule == LearningRateSchedule::cosine ? "cosine" : "constant";
}

double learning_rate(const LearningRateOptions& options, std::int64_t step) {
  if (step < options.warmup_steps) {
    return options.peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  if (options.schedule == LearningRateSchedule::constant) {
    return options.peak;
  }
  if (step >= options.steps) {
    return options.peak * options.minimum_fraction;
  }
  const double progress = static_cast<double>(step - options.warmup_steps) /
                          static_cast<double>(options.steps - options.warmup_steps);
  const double cosine = (1 + std::cos(std::numbers::pi * progress)) / 2;
  return options.peak * (options.minimum_fraction + (1 - options.minimum_fraction) * cosine);
}

}  // namespace ringworld
