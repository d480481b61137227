// The learning rate of each optimizer step.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringworld {

enum class LearningRateSchedule : std::uint8_t { cosine, constant };
std::string_view name_of(LearningRateSchedule schedule);
inline constexpr LearningRateSchedule all_learning_rate_schedules[] = {
    LearningRateSchedule::cosine, LearningRateSchedule::constant};

struct LearningRateOptions {
  double peak = 1e-3;
  std::int64_t warmup_steps = 0;  // W
  std::int64_t steps = 100;       // N, the length of the whole run
  LearningRateSchedule schedule = LearningRateSchedule::cosine;
  double minimum_fraction = 0.1;  // f: what cosine ends at, as a fraction of the peak
};

// The learning rate of optimizer step s, counted from 0:
//   s < W             peak * (s + 1) / W                                     linear warm-up
//   W <= s < N        peak * (f + (1 - f) * (1 + cos(pi * p)) / 2), p = (s - W) / (N - W)
//   s >= N            peak * f
// and peak for every s >= W under the constant schedule. The cosine is SGDR's (Loshchilov and
// Hutter, ICLR 2017) without restarts.
double learning_rate(const LearningRateOptions& options, std::int64_t step);

}  // namespace ringworld
