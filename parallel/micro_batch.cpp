#include "parallel/micro_batch.h"

namespace ringworld {

double run_micro_batch(const Model& model, Backend& backend, const Batch& batch, Strategy& strategy,
                       int micro_batch) {
  const auto& units = model.units();
  Saved saved;
  Tensor x;
  for (const auto& unit : units) {
    x = unit->forward(backend, batch, x, saved);
  }
  const double loss = backend.sum(x);

  Tensor dy;
  for (std::size_t i = units.size(); i-- > 0;) {
    dy = units[i]->backward(backend, batch, dy, saved);
    strategy.after_backward(static_cast<int>(i), micro_batch);
  }
  return loss;
}

double evaluate(const Model& model, Backend& backend, const Batch& batch) {
  Tensor x;
  for (const auto& unit : model.units()) {
    Saved dropped;
    x = unit->forward(backend, batch, x, dropped);
  }
  return backend.sum(x);
}

}  // namespace ringworld
