#include "models/mlp.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "models/embedding.h"
#include "models/head.h"
#include "models/layers.h"

namespace ringworld {

namespace {

// y = dropout(feed_forward(x)). Saved for a token, in elements: x C, hidden H.
class Layer : public Unit {
 public:
  Layer(std::string name, FeedForward mlp, double dropout)
      : Unit(std::move(name)),
        mlp_(mlp),
        dropout_{dropout, stream_of(this->name() + ".dropout"), mlp.tensor} {
    parameters_ = {mlp.c_fc.weight, mlp.c_fc.bias, mlp.c_proj.weight, mlp.c_proj.bias};
  }

  Tensor forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) override {
    saved.push(x);
    Tensor y = mlp_.forward(backend, gather(backend, batch, x), saved, name());
    dropout_.apply(backend, batch, y);
    return y;
  }

  Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy, Saved& saved) override {
    dropout_.apply(backend, batch, dy);  // dy is ours
    const Tensor dhidden =
        mlp_.backward_to_hidden(backend, gather(backend, batch, dy), saved);  // (B, T, H)
    const Tensor x = gather(backend, batch, saved.pop());                     // (B, T, C)
    // (B, T, C), in dy's place where that has been used up
    const Tensor dx = dy.shape() == x.shape() && !saved.puts_off_weights()
                          ? dy
                          : empty_like(backend, x, x.shape()[-1], Category::activations);
    return mlp_.tensor->reduce(backend, mlp_.c_fc.backward(backend, dx, dhidden, x, saved),
                               Category::activations, name());
  }

  SeamCrossings forward_seams() const override { return {.gathers = 1, .reduces = 1}; }
  SeamCrossings backward_seams() const override { return {.gathers = 2, .reduces = 1}; }

 private:
  Tensor gather(Backend& backend, const Batch& batch, const Tensor& x) const {
    return mlp_.tensor->gather(backend, x, batch.tokens.shape(), name());
  }

  FeedForward mlp_;
  Dropout dropout_;
};

}  // namespace

std::unique_ptr<Model> make_mlp(const ModelOptions& dimensions, DType dtype,
                                const TensorParallel* tensor) {
  const std::int64_t width = dimensions.width;
  const std::int64_t hidden = dimensions.hidden;
  const std::int64_t vocabulary = dimensions.vocabulary;
  auto model = std::make_unique<Model>(dimensions.name, dtype, vocabulary, /*context=*/0, tensor);

  model->set_width(width);
  // There is no norm that would restore the size of the activations, so the weights keep it: an
  // embedding of deviation 1, and for a layer of K inputs sqrt(2 / K) (He et al., 2015).
  Parameter* table = model->add_parameter({.name = "embedding.weight",
                                           .shape = {vocabulary, width},
                                           .deviation = 1,
                                           .split_axis = 0,
                                           .looked_up = true});
  model->add_unit(
      std::make_unique<Embedding>("embedding", *model, table, nullptr, dimensions.dropout));

  const auto deviation = [](std::int64_t inputs) {
    return std::sqrt(2.0 / static_cast<double>(inputs));
  };
  for (std::int64_t layer = 0; layer < dimensions.layers; ++layer) {
    const std::string name = fmt::format("h.{}", layer);
    const Linear c_fc =
        add_linear(*model, name + ".c_fc", hidden, width, {.deviation = deviation(width)});
    const Linear c_proj = add_linear(*model, name + ".c_proj", width, hidden,
                                     {.deviation = deviation(hidden), .split = Split::inputs});
    model->add_unit(std::make_unique<Layer>(name, FeedForward{c_fc, c_proj, &model->tensor()},
                                            dimensions.dropout));
  }

  const Linear logits =
      add_linear(*model, "head", vocabulary, width, {.deviation = deviation(width)});
  model->add_unit(std::make_unique<Head>("head", *model, std::nullopt, logits));
  return model;
}

}  // namespace ringworld
