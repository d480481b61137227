// What the model tests share: a backend whose fresh memory is NaN, memory for a model, and one
// micro-batch through the chain of units.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "models/model.h"
#include "runtime/backend.h"
#include "tests/support/backend.h"

namespace ringworld {

inline Tensor upload_ints(Backend& backend, const Shape& shape,
                          const std::vector<std::int32_t>& values) {
  Tensor tensor = backend.empty(DType::i32, shape, Category::workspace);
  backend.upload(tensor, std::as_bytes(std::span(values)));
  return tensor;
}

// Memory for every parameter and a zero gradient, with the initial values of `seed`.
inline void bind(Backend& backend, Model& model, std::uint64_t seed) {
  for (const auto& p : model.parameters()) {
    p->value = backend.empty(model.dtype(), p->shape, Category::parameters);
    p->gradient = backend.zeros(gradient_dtype(model.dtype()), p->shape, Category::gradients);
    initialize(backend, *p, p->value, 0, seed);
  }
}

inline void zero_gradients(Backend& backend, Model& model) {
  for (const auto& p : model.parameters()) {
    backend.fill(p->gradient, 0);
  }
}

// Returns the tokens' losses (B * T); nothing of the forward stays.
inline std::vector<double> forward(Backend& backend, Model& model, const Batch& batch,
                                   Saved& saved) {
  Tensor x;
  for (const auto& unit : model.units()) {
    x = unit->forward(backend, batch, x, saved);
  }
  return backend.download_values(x);
}

inline void backward(Backend& backend, Model& model, const Batch& batch, Saved& saved) {
  Tensor dy;
  for (auto unit = model.units().rbegin(); unit != model.units().rend(); ++unit) {
    dy = (*unit)->backward(backend, batch, dy, saved);
  }
  EXPECT_FALSE(dy.defined());
  EXPECT_TRUE(saved.empty());
}

inline std::vector<double> forward_backward(Backend& backend, Model& model, const Batch& batch) {
  Saved saved;
  std::vector<double> losses = forward(backend, model, batch, saved);
  backward(backend, model, batch, saved);
  return losses;
}

inline double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// |a - b| / |b| over whole tensors, in the Euclidean norm; |a| where b is zero.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(size > 0 ? difference / size : difference);
}

}  // namespace ringworld
