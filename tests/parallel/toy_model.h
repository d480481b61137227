// Models made for a test: a unit whose forward and backward are given by hand.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "models/model.h"

namespace ringworld {

class ToyUnit : public Unit {
 public:
  using Forward = std::function<Tensor(Backend&, const Batch&)>;
  using Backward = std::function<void(Backend&, const Batch&)>;

  ToyUnit(std::string name, std::vector<Parameter*> parameters, Forward forward, Backward backward)
      : Unit(std::move(name)), forward_(std::move(forward)), backward_(std::move(backward)) {
    parameters_ = std::move(parameters);
  }
  Tensor forward(Backend& backend, const Batch& batch, const Tensor&, Saved&) override {
    return forward_(backend, batch);
  }
  Tensor backward(Backend& backend, const Batch& batch, const Tensor&, Saved&) override {
    backward_(backend, batch);
    return {};
  }

 private:
  Forward forward_;
  Backward backward_;
};

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Losses that are all zero, one a token.
inline Tensor no_loss(Backend& backend, const Batch& batch) {
  return backend.zeros(DType::f64, {batch.targets.elements()}, Category::activations);
}

inline void no_gradient(Backend&, const Batch&) {}

// parameter.gradient += value * batch.gradient_factor, in every element.
inline void add_gradient(Backend& backend, const Parameter& parameter, const Batch& batch,
                         double value) {
  const Tensor more =
      backend.empty(parameter.gradient.dtype(), parameter.shape, Category::workspace);
  backend.fill(more, value * batch.gradient_factor);
  backend.add(parameter.gradient, parameter.gradient, more);
}

}  // namespace ringworld
