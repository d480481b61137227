#include "models/embedding.h"

#include <utility>

namespace ringworld {

Embedding::Embedding(std::string name, const Model& model, Parameter* table, Parameter* positions,
                     double dropout)
    : Unit(std::move(name)),
      tensor_(model.tensor()),
      table_(table),
      positions_(positions),
      dropout_{dropout, stream_of(this->name() + ".dropout"), &model.tensor()} {
  parameters_ = {table};
  if (positions != nullptr) {
    parameters_.push_back(positions);
  }
}

// Nothing is saved: the batch itself holds the tokens until backward.
Tensor Embedding::forward(Backend& backend, const Batch& batch, const Tensor& /*x*/,
                          Saved& /*saved*/) {
  const Shape& tokens = batch.tokens.shape();  // (B, T)
  // (B, T, C): zero for tokens of other devices, with the positions on one of them.
  const Tensor partial =
      backend.empty(table_->value.dtype(), {tokens[0], tokens[1], table_->shape[1]},
                    tensor_.sequence_parallel() ? Category::workspace : Category::activations);
  const bool adds_positions = positions_ != nullptr && tensor_.rank() == 0;
  backend.embedding_forward(partial, batch.tokens, table_->value,
                            adds_positions ? positions_->value : Tensor(), first_token());
  Tensor y = tensor_.reduce(backend, partial, Category::activations, name());
  dropout_.apply(backend, batch, y);
  return y;
}

Tensor Embedding::backward(Backend& backend, const Batch& batch, const Tensor& dy,
                           Saved& /*saved*/) {
  dropout_.apply(backend, batch, dy);  // dy is ours
  backend.embedding_backward(
      table_->gradient, positions_ != nullptr ? positions_->gradient : Tensor(),
      tensor_.gather(backend, dy, batch.tokens.shape(), name()), batch.tokens, first_token());
  return {};
}

}  // namespace ringworld
