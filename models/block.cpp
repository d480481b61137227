#include "models/block.h"

#include <utility>

namespace ringworld {

Block::Block(std::string name, const Model& model, const ModelOptions& options,
             const BlockLayers& layers)
    : Unit(std::move(name)),
      tensor_(model.tensor()),
      heads_(static_cast<int>(model.tensor().part(options.heads).count)),
      kv_heads_(static_cast<int>(model.tensor().part(options.kv_heads).count)),
      rope_theta_(options.rope_theta),
      recompute_attention_(options.recompute_attention),
      layers_(layers),
      attention_dropout_{options.dropout, stream_of(this->name() + ".attn.dropout"), &tensor_},
      mlp_dropout_{options.dropout, stream_of(this->name() + ".mlp.dropout"), &tensor_},
      attention_label_(this->name() + ".attn"),
      mlp_label_(this->name() + ".mlp") {
  const auto add = [this](const std::vector<Parameter*>& all) {
    parameters_.insert(parameters_.end(), all.begin(), all.end());
  };
  add(layers.norm_1.parameters());
  add(layers.qkv.parameters());
  add(layers.projection.parameters());
  add(layers.norm_2.parameters());
  add(layers.mlp.c_fc.parameters());
  add(layers.mlp.c_proj.parameters());
}

Tensor Block::forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) {
  return feed_forward(backend, batch, attention(backend, batch, x, saved), saved);
}

// Both halves add to the residual's gradient, so one tensor is dy, dmiddle and dx in turn.
Tensor Block::backward(Backend& backend, const Batch& batch, const Tensor& dy, Saved& saved) {
  feed_forward_backward(backend, batch, dy, saved);
  attention_backward(backend, batch, dy, saved);
  return dy;
}

// x (B, T, C), or this device's rows of it: what a seam leaves. Returns (B, T, C).
Tensor Block::gather(Backend& backend, const Batch& batch, const Tensor& x,
                     const std::string& label) const {
  return tensor_.gather(backend, x, batch.tokens.shape(), label);
}

// Queries and keys, which come first in qkv, or their gradients the other way.
void Block::rotate(Backend& backend, const Tensor& qkv, int sign) const {
  if (rope_theta_ != 0) {
    const std::int64_t head_size = qkv.shape()[2] / (heads_ + 2 * kv_heads_);
    backend.rotary(qkv, heads_ + kv_heads_, head_size, rope_theta_, sign);
  }
}

Block::Attention Block::attend(Backend& backend, const Tensor& qkv, Category category) const {
  const Shape& s = qkv.shape();  // (B, T, (heads' + 2 kv_heads') D)
  Attention result{
      .attended = empty_like(backend, qkv, layers_.projection.inputs(), category),
      .log_sum_exp = backend.empty(wide_dtype(qkv.dtype()), {s[0], heads_, s[1]}, category)};
  backend.attention_forward(result.attended, result.log_sum_exp, qkv, heads_, kv_heads_);
  return result;
}

// Returns middle, as x.
Tensor Block::attention(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) const {
  Tensor normalized =
      gather(backend, batch, layers_.norm_1.forward(backend, x).y, attention_label_);
  // (B, T, (heads' + 2 kv_heads') D)
  const Tensor qkv = empty_like(backend, normalized, layers_.qkv.outputs(), Category::activations);
  layers_.qkv.forward(backend, qkv, normalized);
  rotate(backend, qkv, 1);
  normalized = {};

  const Attention attention =
      attend(backend, qkv, recompute_attention_ ? Category::workspace : Category::activations);

  Tensor middle =
      layers_.projection.forward_summed(backend, tensor_, attention.attended, attention_label_);
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
void Block::attention_backward(Backend& backend, const Batch& batch, const Tensor& dx,
                               Saved& saved) const {
  Attention attention;
  if (!recompute_attention_) {
    attention.attended = saved.pop();
    attention.log_sum_exp = saved.pop();
  }
  Tensor qkv = saved.pop();  // (B, T, (heads' + 2 kv_heads') D)
  const Tensor x = saved.pop();
  if (recompute_attention_) {
    attention = attend(backend, qkv, Category::workspace);
  }

  Tensor dattended =
      empty_like(backend, attention.attended, layers_.projection.inputs(), Category::workspace);
  {
    const Tensor dy = saved.keep(
        backend,
        gather(backend, batch, attention_dropout_.backward(backend, batch, dx), attention_label_),
        dx);  // (B, T, C)
    layers_.projection.backward(backend, dattended, dy, attention.attended, saved);
  }
  const Tensor dqkv = empty_like(backend, qkv, qkv.shape()[2], Category::workspace);
  backend.attention_backward(dqkv, dattended, attention.attended, attention.log_sum_exp, qkv,
                             heads_, kv_heads_);
  rotate(backend, dqkv, -1);
  attention = {};
  qkv = dattended = {};
  through_norm(backend, batch, dx, dqkv, x, layers_.norm_1, layers_.qkv, saved, attention_label_);
}

// Returns y, as middle.
Tensor Block::feed_forward(Backend& backend, const Batch& batch, const Tensor& middle,
                           Saved& saved) const {
  saved.push(middle);
  Tensor y = layers_.mlp.forward(
      backend, gather(backend, batch, layers_.norm_2.forward(backend, middle).y, mlp_label_), saved,
      mlp_label_);
  mlp_dropout_.apply(backend, batch, y);
  backend.add(y, y, middle);
  return y;
}

// `dmiddle` comes in as dy.
void Block::feed_forward_backward(Backend& backend, const Batch& batch, const Tensor& dmiddle,
                                  Saved& saved) const {
  // As the output of c_fc.
  const Tensor dhidden = layers_.mlp.backward_to_hidden(
      backend,
      saved.keep(backend,
                 gather(backend, batch, mlp_dropout_.backward(backend, batch, dmiddle), mlp_label_),
                 dmiddle),
      saved);
  const Tensor middle = saved.pop();
  through_norm(backend, batch, dmiddle, dhidden, middle, layers_.norm_2, layers_.mlp.c_fc, saved,
               mlp_label_);
}

// Backward of linear(norm(x)): adds to dx, for the gradient dy of the linear layer's output.
void Block::through_norm(Backend& backend, const Batch& batch, const Tensor& dx, const Tensor& dy,
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

}  // namespace ringworld
