#include "models/embedding.h"

#include <utility>

namespace ringworld {

Embedding::Embedding(std::string name, Parameter* table, Parameter* positions, double dropout)
    : Unit(std::move(name)),
      table_(table),
      positions_(positions),
      dropout_{dropout, stream_of(this->name() + ".dropout")} {
  parameters_ = {table};
  if (positions != nullptr) {
    parameters_.push_back(positions);
  }
}

// Nothing is saved: the batch itself holds the tokens until backward.
Tensor Embedding::forward(Backend& backend, const Batch& batch, const Tensor& /*x*/,
                          Saved& /*saved*/) {
  const Shape& tokens = batch.tokens.shape();  // (B, T)
  // (B, T, C)
  Tensor y = backend.empty(table_->value.dtype(), {tokens[0], tokens[1], table_->shape[1]},
                           Category::activations);
  backend.embedding_forward(y, batch.tokens, table_->value,
                            positions_ != nullptr ? positions_->value : Tensor());
  dropout_.apply(backend, batch, y);
  return y;
}

Tensor Embedding::backward(Backend& backend, const Batch& batch, const Tensor& dy,
                           Saved& /*saved*/) {
  dropout_.apply(backend, batch, dy);  // dy is ours
  backend.embedding_backward(
      table_->gradient, positions_ != nullptr ? positions_->gradient : Tensor(), dy, batch.tokens);
  return {};
}

}  // namespace ringworld
