// The first unit of a language model: a vector for each token, and one for its position if there is
// a table of them, with dropout on their sum.
#pragma once

#include "models/layers.h"

namespace ringworld {

class Embedding : public Unit {
 public:
  // table (V, C); positions (context, C) or nullptr.
  Embedding(std::string name, Parameter* table, Parameter* positions, double dropout = 0);

  Tensor forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) override;
  Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy, Saved& saved) override;

 private:
  Parameter* table_;
  Parameter* positions_;
  Dropout dropout_;
};

}  // namespace ringworld
