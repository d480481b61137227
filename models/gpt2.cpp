#include "models/gpt2.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "models/embedding.h"
#include "models/head.h"
#include "models/layers.h"

namespace ringworld {

namespace {

// y = middle + dropout(feed_forward(ln_2(middle))),
// middle = x + dropout(c_proj(attention(c_attn(ln_1(x))))).
//
// Saved for a token, in elements: x C, qkv 3C, middle C, hidden H and, unless attention is
// computed again, attended C and one log-sum-exp for each head. The outputs of layer norms and
// GELU are always computed again in backward.
class Block : public Unit {
 public:
  Block(std::string name, const ModelOptions& options, LayerNorm ln_1, Linear c_attn, Linear c_proj,
        LayerNorm ln_2, FeedForward mlp)
      : Unit(std::move(name)),
        heads_(static_cast<int>(options.heads)),
        recompute_attention_(options.recompute_attention),
        ln_1_(ln_1),
        c_attn_(c_attn),
        c_proj_(c_proj),
        ln_2_(ln_2),
        mlp_(mlp),
        attention_dropout_{options.dropout, stream_of(this->name() + ".attn.dropout")},
        mlp_dropout_{options.dropout, stream_of(this->name() + ".mlp.dropout")} {
    parameters_ = {ln_1.weight,     ln_1.bias,     c_attn.weight,     c_attn.bias,
                   c_proj.weight,   c_proj.bias,   ln_2.weight,       ln_2.bias,
                   mlp.c_fc.weight, mlp.c_fc.bias, mlp.c_proj.weight, mlp.c_proj.bias};
  }

  Tensor forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) override {
    return feed_forward(backend, batch, attention(backend, batch, x, saved), saved);
  }

  // Both halves add to the residual's gradient, so one tensor is dy, dmiddle and dx in turn.
  Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy, Saved& saved) override {
    feed_forward_backward(backend, batch, dy, saved);
    attention_backward(backend, batch, dy, saved);
    return dy;
  }

 private:
  struct Attention {
    Tensor attended;     // (B, T, C)
    Tensor log_sum_exp;  // (B, heads, T)
  };
  Attention attend(Backend& backend, const Tensor& qkv, Category category) const {
    const Shape& s = qkv.shape();  // (B, T, 3C)
    Attention result{
        .attended = empty_like(backend, qkv, s[2] / 3, category),
        .log_sum_exp = backend.empty(wide_dtype(qkv.dtype()), {s[0], heads_, s[1]}, category)};
    backend.attention_forward(result.attended, result.log_sum_exp, qkv, heads_, heads_);
    return result;
  }

  // Returns middle (B, T, C).
  Tensor attention(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) const {
    const std::int64_t width = x.shape()[2];

    const Tensor qkv = empty_like(backend, x, 3 * width, Category::activations);  // (B, T, 3C)
    c_attn_.forward(backend, qkv, ln_1_.forward(backend, x).y);

    const Attention attention =
        attend(backend, qkv, recompute_attention_ ? Category::workspace : Category::activations);

    Tensor middle = empty_like(backend, x, width, Category::activations);  // (B, T, C)
    c_proj_.forward(backend, middle, attention.attended);
    attention_dropout_.apply(backend, batch, middle);
    backend.add(middle, middle, x);

    saved.push(x);
    saved.push(qkv);
    if (!recompute_attention_) {
      saved.push(attention.log_sum_exp);
      saved.push(attention.attended);
    }
    return middle;
  }

  // `dx` (B, T, C) comes in as dmiddle.
  void attention_backward(Backend& backend, const Batch& batch, const Tensor& dx,
                          Saved& saved) const {
    Attention attention;
    if (!recompute_attention_) {
      attention.attended = saved.pop();
      attention.log_sum_exp = saved.pop();
    }
    Tensor qkv = saved.pop();      // (B, T, 3C)
    const Tensor x = saved.pop();  // (B, T, C)
    if (recompute_attention_) {
      attention = attend(backend, qkv, Category::workspace);
    }
    const std::int64_t width = x.shape()[2];

    Tensor dattended = empty_like(backend, x, width, Category::workspace);  // (B, T, C)
    c_proj_.backward(backend, dattended, attention_dropout_.backward(backend, batch, dx),
                     attention.attended);

    const Tensor dqkv = empty_like(backend, x, 3 * width, Category::workspace);  // (B, T, 3C)
    backend.attention_backward(dqkv, dattended, attention.attended, attention.log_sum_exp, qkv,
                               heads_, heads_);
    attention = {};
    qkv = dattended = {};

    const LayerNorm::Output normalized = ln_1_.forward(backend, x);
    const Tensor& dnormalized = normalized.y;  // (B, T, C), takes the place of the norm's output
    c_attn_.backward(backend, dnormalized, dqkv, normalized.y);
    ln_1_.backward(backend, dx, dnormalized, x, normalized);
  }

  // Returns y (B, T, C).
  Tensor feed_forward(Backend& backend, const Batch& batch, const Tensor& middle,
                      Saved& saved) const {
    saved.push(middle);
    Tensor y = mlp_.forward(backend, ln_2_.forward(backend, middle).y, saved);
    mlp_dropout_.apply(backend, batch, y);
    backend.add(y, y, middle);
    return y;
  }

  // `dmiddle` (B, T, C) comes in as dy.
  void feed_forward_backward(Backend& backend, const Batch& batch, const Tensor& dmiddle,
                             Saved& saved) const {
    // (B, T, H)
    const Tensor dhidden =
        mlp_.backward_to_hidden(backend, mlp_dropout_.backward(backend, batch, dmiddle), saved);
    const Tensor middle = saved.pop();  // (B, T, C)
    const LayerNorm::Output normalized = ln_2_.forward(backend, middle);
    const Tensor& dnormalized = normalized.y;  // (B, T, C), takes the place of the norm's output
    mlp_.c_fc.backward(backend, dnormalized, dhidden, normalized.y);
    ln_2_.backward(backend, dmiddle, dnormalized, middle, normalized);
  }

  int heads_;
  bool recompute_attention_;
  LayerNorm ln_1_;
  Linear c_attn_;  // (3C, C): queries, keys, values
  Linear c_proj_;  // (C, C)
  LayerNorm ln_2_;
  FeedForward mlp_;
  Dropout attention_dropout_;  // of c_proj's output
  Dropout mlp_dropout_;        // of mlp's output
};

constexpr double weight_deviation = 0.02;

}  // namespace

std::unique_ptr<Model> make_gpt2(const ModelOptions& dimensions, DType dtype) {
  const std::int64_t width = dimensions.width;
  const std::int64_t hidden = dimensions.hidden;
  auto model =
      std::make_unique<Model>(dimensions.name, dtype, dimensions.vocabulary, dimensions.context);
  model->set_attention(dimensions.layers, width);

  Parameter* wte = model->add_parameter({.name = "wte.weight",
                                         .shape = {dimensions.vocabulary, width},
                                         .deviation = weight_deviation,
                                         .split_axis = 0});
  Parameter* wpe = model->add_parameter(
      {.name = "wpe.weight", .shape = {dimensions.context, width}, .deviation = weight_deviation});
  model->add_unit(std::make_unique<Embedding>("embedding", wte, wpe, dimensions.dropout));

  // Two projections of every layer add to the residual; scaled down, their sum keeps its size
  // however many there are.
  const double projection_deviation =
      weight_deviation / std::sqrt(2.0 * static_cast<double>(dimensions.layers));
  for (std::int64_t layer = 0; layer < dimensions.layers; ++layer) {
    const std::string name = fmt::format("h.{}", layer);
    const LayerNorm ln_1 = add_layer_norm(*model, name + ".ln_1", width);
    const Linear c_attn = add_linear(*model, name + ".attn.c_attn", 3 * width, width,
                                     weight_deviation, Split::outputs);
    const Linear c_proj = add_linear(*model, name + ".attn.c_proj", width, width,
                                     projection_deviation, Split::inputs);
    const LayerNorm ln_2 = add_layer_norm(*model, name + ".ln_2", width);
    const Linear mlp_c_fc =
        add_linear(*model, name + ".mlp.c_fc", hidden, width, weight_deviation, Split::outputs);
    const Linear mlp_c_proj = add_linear(*model, name + ".mlp.c_proj", width, hidden,
                                         projection_deviation, Split::inputs);
    model->add_unit(std::make_unique<Block>(name, dimensions, ln_1, c_attn, c_proj, ln_2,
                                            FeedForward{mlp_c_fc, mlp_c_proj}));
  }

  const LayerNorm ln_f = add_layer_norm(*model, "ln_f", width);
  model->add_unit(std::make_unique<Head>("head", ln_f, Linear{.weight = wte}));
  return model;
}

}  // namespace ringworld
