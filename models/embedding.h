// The first unit of a language model: a vector for each token, and one for its position if there is
// a table of them, with dropout on their sum.
#pragma once

#include "models/layers.h"

namespace ringworld {

class Embedding : public Unit {
 public:
  // table (V, C); positions (context, C) or nullptr; both are the model's.
  Embedding(std::string name, const Model& model, Parameter* table, Parameter* positions,
            double dropout = 0);

  Tensor forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) override;
  Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy, Saved& saved) override;

  SeamCrossings forward_seams() const override { return {.reduces = 1}; }
  SeamCrossings backward_seams() const override { return {.gathers = 1}; }

 private:
  // The token of the first row of this device's part of the table; none where it is whole.
  std::optional<std::int64_t> first_token() const {
    return table_->parts.empty() ? std::nullopt : std::optional(table_->parts.front().first);
  }

  const TensorParallel& tensor_;
  Parameter* table_;
  Parameter* positions_;
  Dropout dropout_;
};

}  // namespace ringworld
