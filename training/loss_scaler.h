// Loss scaling (Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2): the
// loss, and so every gradient, is multiplied with a scale, so that small gradients do not become
// zero in f16 on their way down; the optimizer divides it out again. A scale that is too large
// makes gradients overflow: such a step is skipped. The dynamic scale looks for the largest that
// does not, as in Megatron-LM and DeepSpeed: it grows after a while without overflows, and backs
// off at an overflow, but not at the first ones after it grew (hysteresis), which a single batch
// may cause.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringworld {

// none: a scale of 1, and a step that is not finite is an error at once. Fixed ("static"): the
// initial scale; steps that overflow are skipped.
enum class LossScaling : std::uint8_t { none, fixed, dynamic };
inline constexpr LossScaling all_loss_scalings[] = {LossScaling::none, LossScaling::fixed,
                                                    LossScaling::dynamic};
std::string_view name_of(LossScaling mode);  // "none", "static", "dynamic"

struct LossScalerOptions {
  LossScaling mode = LossScaling::none;
  double initial_scale = 65536;
  double growth_factor = 2;
  std::int64_t growth_window = 1000;  // good steps in a row after which the scale grows
  double backoff_factor = 0.5;
  // The scale backs off at the hysteresis-th overflow after it last grew, and at every one after
  // that; 1: at the first. Overflows need not follow one another.
  std::int64_t hysteresis = 2;
  double minimum_scale = 1;  // backing off stops there
  // As many steps skipped in a row end the run: what is not finite at every scale is no overflow.
  std::int64_t maximum_skips = 20;
};

class LossScaler {
 public:
  // Throws UsageError when a number is out of its range; mode none looks at none of them.
  explicit LossScaler(const LossScalerOptions& options = {});

  const LossScalerOptions& options() const { return options_; }
  bool skips_overflows() const { return options_.mode != LossScaling::none; }
  // What the loss is multiplied with in the next step.
  double scale() const { return state_.scale; }
  // After every step: whether its gradient was not finite, which must be the same on all ranks.
  void update(bool overflow);
  // Steps skipped in a row, up to now, and whether they are as many as may be.
  std::int64_t consecutive_skips() const { return state_.consecutive_skips; }
  bool gives_up() const { return state_.consecutive_skips >= options_.maximum_skips; }

  // All that a checkpoint must keep.
  struct State {
    double scale = 1;
    std::int64_t good_steps = 0;       // in a row, since the scale last grew
    std::int64_t hysteresis_left = 0;  // overflows until the scale backs off
    std::int64_t consecutive_skips = 0;
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScalerOptions options_;
  State state_;
};

}  // namespace ringworld
