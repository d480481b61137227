#include "planner/runtime_units.h"

#include <algorithm>
#include <utility>

#include "runtime/cpu/narrow_matmul.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/workspace.h"

namespace ringworld {
namespace {

// Of the first of `tensor` ranks.
std::int64_t first_part(std::int64_t whole, std::int64_t tensor) {
  return (whole + tensor - 1) / tensor;
}

}  // namespace

RuntimeUnits::RuntimeUnits(const Transformer& m, const Layout& l, int threads, Books& books)
    : books_(books),
      threads_(threads),
      recomputes_attention_(l.recompute == Recompute::selective),
      narrow_(wide_dtype(l.precision) != l.precision),
      layer_norm_(m.norm == NormKind::layer),
      gated_(m.gated_mlp),
      sequence_parallel_(l.sequence_parallel),
      tensor_(l.tensor),
      sequences_(l.micro_batch),
      length_(l.sequence_length),
      tokens_(sequences_ * length_),
      rows_(sequence_parallel_ ? first_part(tokens_, tensor_) : tokens_),
      width_(m.width),
      hidden_(m.hidden / tensor_),
      heads_(m.heads / tensor_),
      kv_heads_(m.kv_heads / tensor_),
      head_size_(m.head_size),
      value_(size_of(l.precision).value),
      wide_(size_of(wide_dtype(l.precision)).value),
      qkv_{(heads_ + 2 * kv_heads_) * head_size_, width_},
      projection_{width_, heads_ * head_size_},
      c_fc_{(gated_ ? 2 : 1) * hidden_, width_},
      c_proj_{width_, hidden_},
      logits_{first_part(m.vocabulary, tensor_), width_} {}

Held RuntimeUnits::batch() {
  return activations(2 * tokens_ * size_of(DType::i32).value);
}

Held RuntimeUnits::between_units() {
  return activations(rows_ * width_ * value_);
}

Held RuntimeUnits::forward(UnitKind unit, const Held& x, SavedBooks& saved) {
  switch (unit) {
    case UnitKind::embedding: {
      const Held partial =
          books_.hold(sequence_parallel_ ? Category::workspace : Category::activations,
                      tokens_ * width_ * value_);
      return reduce(partial, Category::activations);
    }
    case UnitKind::block:
      return block_forward(x, saved);
    case UnitKind::head:
      return head_forward(x, saved);
  }
  return {};
}

Held RuntimeUnits::backward(UnitKind unit, const Held& dy, SavedBooks& saved) {
  switch (unit) {
    case UnitKind::embedding:
      gather(dy);
      return {};
    case UnitKind::block:
      return block_backward(dy, saved);
    case UnitKind::head:
      return head_backward(saved);
  }
  return {};
}

void RuntimeUnits::add_weight_gradients(SavedBooks& saved) {
  for (SavedBooks::WeightGradient& of : saved.weights_) {
    touch_matmul(of.outputs, of.inputs, tokens_, false);
    of = {};
  }
  saved.weights_.clear();
}

// --- Block ---------------------------------------------------------------------------------------

Held RuntimeUnits::block_forward(const Held& x, SavedBooks& saved) {
  Held normalized = gather(norm().y);
  const Held qkv = activations(tokens_ * qkv_.outputs * value_);
  linear_forward(qkv_);
  normalized = {};
  Attention attention = attend(recomputes_attention_ ? Category::workspace : Category::activations);
  const Held middle = forward_summed(projection_);
  saved.push(x);
  saved.push(qkv);
  if (!recomputes_attention_) {
    saved.push(attention.log_sum_exp);
    saved.push(attention.attended);
  }
  attention = {};

  saved.push(middle);
  const Norm input = norm();
  const Held whole = gather(input.y);
  return mlp_forward(saved);
}

Held RuntimeUnits::block_backward(const Held& dx, SavedBooks& saved) {
  {
    const Held dhidden = mlp_backward_to_hidden(keep(gather(dx), dx, saved), saved);
    const Held middle = saved.pop();
    through_norm(dhidden, c_fc_, saved);
  }
  Attention attention;
  if (!recomputes_attention_) {
    attention.attended = saved.pop();
    attention.log_sum_exp = saved.pop();
  }
  Held qkv = saved.pop();
  const Held x = saved.pop();
  if (recomputes_attention_) {
    attention = attend(Category::workspace);
  }
  Held dattended = workspace(tokens_ * projection_.inputs * value_);
  {
    const Held dy = keep(gather(dx), dx, saved);
    linear_backward(projection_, dattended, dy, attention.attended, saved);
  }
  const Held dqkv = workspace(tokens_ * qkv_.outputs * value_);
  touch_attention(true);
  attention = {};
  qkv = dattended = {};
  through_norm(dqkv, qkv_, saved);
  return dx;
}

// The activation's output lives until c_proj is through.
Held RuntimeUnits::mlp_forward(SavedBooks& saved) {
  saved.push(activations(tokens_ * c_fc_.outputs * value_));
  linear_forward(c_fc_);
  const Held activated = workspace(tokens_ * hidden_ * value_);
  return forward_summed(c_proj_);
}

// SwiGLU's gradient takes the place of its input, GELU's that of its output.
Held RuntimeUnits::mlp_backward_to_hidden(const Held& dy, SavedBooks& saved) {
  const Held hidden = saved.pop();
  Held buffer = workspace(tokens_ * hidden_ * value_);
  buffer = linear_backward(c_proj_, buffer, dy, buffer, saved);
  return gated_ ? hidden : buffer;
}

void RuntimeUnits::through_norm(const Held& dy, const Linear& linear, SavedBooks& saved) {
  const Norm normalized = norm();
  Held input = gather(normalized.y);
  const Held partial = linear_backward(linear, input, dy, input, saved);
  input = {};
  const Held own = reduce(partial, Category::workspace);
  touch_norm_backward();
}

RuntimeUnits::Attention RuntimeUnits::attend(Category category) {
  Attention attention{.attended = books_.hold(category, tokens_ * projection_.inputs * value_),
                      .log_sum_exp = books_.hold(category, sequences_ * heads_ * length_ * wide_)};
  touch_attention(false);
  return attention;
}

// --- Head ----------------------------------------------------------------------------------------

Held RuntimeUnits::head_forward(const Held& x, SavedBooks& saved) {
  Held input = gather(norm().y);
  const Held logits = activations(tokens_ * logits_.outputs * value_);
  linear_forward(logits_);
  input = {};
  const Held losses = activations(tokens_ * wide_);
  const Held log_sum_exp = activations(tokens_ * wide_);
  saved.push(x);
  saved.push(log_sum_exp);
  saved.push(logits);
  return losses;
}

Held RuntimeUnits::head_backward(SavedBooks& saved) {
  Held dlogits = saved.pop();
  const Held log_sum_exp = saved.pop();
  const Held x = saved.pop();
  const Norm normalized = norm();
  Held input = gather(normalized.y);
  const Held partial = linear_backward(logits_, input, dlogits, input, saved);
  input = {};
  dlogits = {};
  Held dx = between_units();
  const Held own = reduce(partial, Category::workspace);
  touch_norm_backward();
  return dx;
}

// --- Layers --------------------------------------------------------------------------------------

RuntimeUnits::Norm RuntimeUnits::norm() {
  return {.y = workspace(rows_ * width_ * value_),
          .statistics = workspace((layer_norm_ ? 2 : 1) * rows_ * wide_)};
}

Held RuntimeUnits::gather(const Held& x) {
  return sequence_parallel_ ? workspace(tokens_ * width_ * value_) : x;
}

Held RuntimeUnits::reduce(const Held& partial, Category category) {
  return sequence_parallel_ ? books_.hold(category, rows_ * width_ * value_) : partial;
}

Held RuntimeUnits::forward_summed(const Linear& linear) {
  const Held partial = books_.hold(sequence_parallel_ ? Category::workspace : Category::activations,
                                   tokens_ * width_ * value_);
  linear_forward(linear);
  return reduce(partial, Category::activations);
}

void RuntimeUnits::linear_forward(const Linear& linear) {
  touch_matmul(tokens_, linear.outputs, linear.inputs, true);
}

// Returns dx, which is computed where x is unless that is kept.
Held RuntimeUnits::linear_backward(const Linear& linear, const Held& dx, const Held& dy,
                                   const Held& x, SavedBooks& saved) {
  Held own_dx = dx;
  if (!saved.puts_off_) {
    touch_matmul(linear.outputs, linear.inputs, tokens_, false);  // the weight's gradient is wide
  } else {
    saved.weights_.push_back({linear.outputs, linear.inputs, dy, x});
    own_dx = dx != x ? dx : workspace(tokens_ * linear.inputs * value_);
  }
  touch_matmul(tokens_, linear.inputs, linear.outputs, true);
  return own_dx;
}

Held RuntimeUnits::keep(const Held& x, const Held& changes, const SavedBooks& saved) {
  return saved.puts_off_ && x == changes ? between_units() : x;
}

// --- Kernels -------------------------------------------------------------------------------------

void RuntimeUnits::touch_matmul(std::int64_t m, std::int64_t n, std::int64_t k, bool narrow_out) {
  if (narrow_) {
    const std::int64_t parts = count_parts(threads_, std::max(m, n), matmul_grain(m, n, k));
    books_.touch(
        Category::workspace,
        parts * NarrowTile::of(m, n, k).workspace_elements(narrow_out) * size_of(DType::f32).value);
  }
}

void RuntimeUnits::touch_norm_backward() {
  const std::int64_t parts = count_parts(threads_, rows_, rows_per_part(width_));
  books_.touch(Category::workspace, parts * (layer_norm_ ? 2 : 1) * width_ * wide_);
}

void RuntimeUnits::touch_attention(bool backward) {
  const std::int64_t tile = attention_tile(length_);
  const std::int64_t parts = count_parts(threads_, sequences_ * (backward ? kv_heads_ : heads_), 1);
  const std::int64_t of_part = backward ? 2 * tile * length_ + tile : tile * length_;
  // Operands of narrow formats, widened: qkv and y; in backward their gradients, too.
  const std::int64_t operands = tokens_ * (qkv_.outputs + projection_.inputs);
  const std::int64_t widened = narrow_ ? (backward ? 2 : 1) * operands : 0;
  books_.touch(Category::workspace, (parts * of_part + widened) * wide_);
}

}  // namespace ringworld
