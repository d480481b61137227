#include "models/gpt2.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "models/embedding.h"
#include "models/head.h"
#include "models/layers.h"
#include "models/norm.h"

namespace ringworld {

namespace {

// y = middle + dropout(feed_forward(ln_2(middle))),
// middle = x + dropout(c_proj(attention(c_attn(ln_1(x))))).
//
// x, middle and y are what seams of tensor parallelism leave: (B, T, C), or with sequence
// parallelism this device's rows of it, (1, rows, C). C' and H' are C and H over the devices.
//
// Saved for a token, in elements: x C, qkv 3C', middle C, hidden H' and, unless attention is
// computed again, attended C' and one log-sum-exp for each head. The outputs of layer norms and
// GELU are always computed again in backward.
class Block : public Unit {
 public:
  Block(std::string name, const Model& model, const ModelOptions& options, Norm ln_1,
        Linear c_attn, Linear c_proj, Norm ln_2, FeedForward mlp)
      : Unit(std::move(name)),
        tensor_(model.tensor()),
        heads_(static_cast<int>(model.tensor().part(options.heads).count)),
        recompute_attention_(options.recompute_attention),
        ln_1_(ln_1),
        c_attn_(c_attn),
        c_proj_(c_proj),
        ln_2_(ln_2),
        mlp_(mlp),
        attention_dropout_{options.dropout, stream_of(this->name() + ".attn.dropout"), &tensor_},
        mlp_dropout_{options.dropout, stream_of(this->name() + ".mlp.dropout"), &tensor_},
        attention_label_(this->name() + ".attn"),
        mlp_label_(this->name() + ".mlp") {
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

  SeamCrossings forward_seams() const override { return {.gathers = 2, .reduces = 2}; }
  SeamCrossings backward_seams() const override { return {.gathers = 4, .reduces = 2}; }

 private:
  // x (B, T, C), or this device's rows of it: what a seam leaves. Returns (B, T, C).
  Tensor gather(Backend& backend, const Batch& batch, const Tensor& x,
                const std::string& label) const {
    return tensor_.gather(backend, x, batch.tokens.shape(), label);
  }

  struct Attention {
    Tensor attended;     // (B, T, C'), C' of this device's heads
    Tensor log_sum_exp;  // (B, heads, T)
  };
  Attention attend(Backend& backend, const Tensor& qkv, Category category) const {
    const Shape& s = qkv.shape();  // (B, T, 3C')
    Attention result{
        .attended = empty_like(backend, qkv, s[2] / 3, category),
        .log_sum_exp = backend.empty(wide_dtype(qkv.dtype()), {s[0], heads_, s[1]}, category)};
    backend.attention_forward(result.attended, result.log_sum_exp, qkv, heads_, heads_);
    return result;
  }

  // Returns middle, as x.
  Tensor attention(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) const {
    Tensor normalized = gather(backend, batch, ln_1_.forward(backend, x).y, attention_label_);
    // (B, T, 3C')
    const Tensor qkv =
        empty_like(backend, normalized, c_attn_.outputs(), Category::activations);
    c_attn_.forward(backend, qkv, normalized);
    normalized = {};

    const Attention attention =
        attend(backend, qkv, recompute_attention_ ? Category::workspace : Category::activations);

    Tensor middle = c_proj_.forward_summed(backend, tensor_, attention.attended, attention_label_);
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

  // `dx` comes in as dmiddle.
  void attention_backward(Backend& backend, const Batch& batch, const Tensor& dx,
                          Saved& saved) const {
    Attention attention;
    if (!recompute_attention_) {
      attention.attended = saved.pop();
      attention.log_sum_exp = saved.pop();
    }
    Tensor qkv = saved.pop();  // (B, T, 3C')
    const Tensor x = saved.pop();
    if (recompute_attention_) {
      attention = attend(backend, qkv, Category::workspace);
    }

    Tensor dattended = empty_like(backend, qkv, qkv.shape()[2] / 3, Category::workspace);
    {
      const Tensor dy = saved.keep(
          backend,
          gather(backend, batch, attention_dropout_.backward(backend, batch, dx), attention_label_),
          dx);  // (B, T, C)
      c_proj_.backward(backend, dattended, dy, attention.attended, saved);
    }
    const Tensor dqkv = empty_like(backend, qkv, qkv.shape()[2], Category::workspace);
    backend.attention_backward(dqkv, dattended, attention.attended, attention.log_sum_exp, qkv,
                               heads_, heads_);
    attention = {};
    qkv = dattended = {};
    through_norm(backend, batch, dx, dqkv, x, ln_1_, c_attn_, saved, attention_label_);
  }

  // Returns y, as middle.
  Tensor feed_forward(Backend& backend, const Batch& batch, const Tensor& middle,
                      Saved& saved) const {
    saved.push(middle);
    Tensor y = mlp_.forward(
        backend, gather(backend, batch, ln_2_.forward(backend, middle).y, mlp_label_), saved,
        mlp_label_);
    mlp_dropout_.apply(backend, batch, y);
    backend.add(y, y, middle);
    return y;
  }

  // `dmiddle` comes in as dy.
  void feed_forward_backward(Backend& backend, const Batch& batch, const Tensor& dmiddle,
                             Saved& saved) const {
    // (B, T, H')
    const Tensor dhidden = mlp_.backward_to_hidden(
        backend,
        saved.keep(
            backend,
            gather(backend, batch, mlp_dropout_.backward(backend, batch, dmiddle), mlp_label_),
            dmiddle),
        saved);
    const Tensor middle = saved.pop();
    through_norm(backend, batch, dmiddle, dhidden, middle, ln_2_, mlp_.c_fc, saved, mlp_label_);
  }

  // Backward of linear(norm(x)): adds to dx, for the gradient dy of the linear layer's output.
  void through_norm(Backend& backend, const Batch& batch, const Tensor& dx, const Tensor& dy,
                    const Tensor& x, const Norm& norm, const Linear& linear, Saved& saved,
                    const std::string& label) const {
    const Norm::Output normalized = norm.forward(backend, x);
    Tensor input = gather(backend, batch, normalized.y, label);  // (B, T, C)
    // (B, T, C), takes the place of the layer's input
    const Tensor partial = linear.backward(backend, input, dy, input, saved);
    input = {};
    norm.backward(backend, dx, tensor_.reduce(backend, partial, Category::workspace, label), x,
                  normalized);
  }

  const TensorParallel& tensor_;
  int heads_;  // of this device
  bool recompute_attention_;
  Norm ln_1_;
  Linear c_attn_;  // (3C', C): queries, keys, values
  Linear c_proj_;  // (C, C')
  Norm ln_2_;
  FeedForward mlp_;
  Dropout attention_dropout_;  // of c_proj's output
  Dropout mlp_dropout_;        // of mlp's output
  std::string attention_label_;
  std::string mlp_label_;
};

constexpr double weight_deviation = 0.02;

}  // namespace

std::unique_ptr<Model> make_gpt2(const ModelOptions& dimensions, DType dtype,
                                 const TensorParallel* tensor) {
  const std::int64_t width = dimensions.width;
  const std::int64_t hidden = dimensions.hidden;
  auto model = std::make_unique<Model>(dimensions.name, dtype, dimensions.vocabulary,
                                       dimensions.context, tensor);
  model->set_width(width);
  model->set_attention(dimensions.layers, width);

  Parameter* wte = model->add_parameter({.name = "wte.weight",
                                         .shape = {dimensions.vocabulary, width},
                                         .deviation = weight_deviation,
                                         .split_axis = 0});
  Parameter* wpe = model->add_parameter(
      {.name = "wpe.weight", .shape = {dimensions.context, width}, .deviation = weight_deviation});
  model->add_unit(std::make_unique<Embedding>("embedding", *model, wte, wpe, dimensions.dropout));

  // Two projections of every layer add to the residual; scaled down, their sum keeps its size
  // however many there are.
  const double projection_deviation =
      weight_deviation / std::sqrt(2.0 * static_cast<double>(dimensions.layers));
  for (std::int64_t layer = 0; layer < dimensions.layers; ++layer) {
    const std::string name = fmt::format("h.{}", layer);
    const Norm ln_1 = add_layer_norm(*model, name + ".ln_1", width);
    const Linear c_attn =
        add_linear(*model, name + ".attn.c_attn", 3 * width, width,
                   {.deviation = weight_deviation, .sections = {width, width, width}});
    const Linear c_proj = add_linear(*model, name + ".attn.c_proj", width, width,
                                     {.deviation = projection_deviation, .split = Split::inputs});
    const Norm ln_2 = add_layer_norm(*model, name + ".ln_2", width);
    const Linear mlp_c_fc = add_linear(*model, name + ".mlp.c_fc", hidden, width,
                                       {.deviation = weight_deviation});
    const Linear mlp_c_proj =
        add_linear(*model, name + ".mlp.c_proj", width, hidden,
                   {.deviation = projection_deviation, .split = Split::inputs});
    model->add_unit(
        std::make_unique<Block>(name, *model, dimensions, ln_1, c_attn, c_proj, ln_2,
                                FeedForward{mlp_c_fc, mlp_c_proj, &model->tensor()}));
  }

  const Norm ln_f = add_layer_norm(*model, "ln_f", width);
  model->add_unit(std::make_unique<Head>("head", *model, ln_f, Linear{.weight = wte}));
  return model;
}

}  // namespace ringworld
