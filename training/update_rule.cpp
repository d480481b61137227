#include "training/update_rule.h"

namespace ringworld {

std::string_view name_of(OptimizerKind kind) {
  return kind == OptimizerKind::adamw ? "adamw" : "sgd";
}

int UpdateRule::states() const {
  if (options_.kind == OptimizerKind::adamw) {
    return 2;
  }
  return options_.momentum != 0 ? 1 : 0;
}

void UpdateRule::apply(Backend& backend, const Tensor& master, std::span<const Tensor> states,
                       const Tensor& gradient, bool decay, const UpdateStep& step) const {
  const double weight_decay = decay ? options_.weight_decay : 0;
  if (options_.kind == OptimizerKind::adamw) {
    backend.adamw(master, states[0], states[1], gradient,
                  {.learning_rate = step.learning_rate,
                   .beta1 = options_.beta1,
                   .beta2 = options_.beta2,
                   .epsilon = options_.epsilon,
                   .weight_decay = weight_decay,
                   .gradient_scale = step.gradient_scale,
                   .step = step.number});
  } else {
    backend.sgd(master, states.empty() ? Tensor() : states[0], gradient,
                {.learning_rate = step.learning_rate,
                 .momentum = options_.momentum,
                 .weight_decay = weight_decay,
                 .gradient_scale = step.gradient_scale});
  }
}

}  // namespace ringworld
