#include "planner/runtime_units.h"

#include <algorithm>

#include "runtime/cpu/narrow_matmul.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/workspace.h"

namespace ringworld {
namespace {

constexpr auto activations = Category::activations;
constexpr auto workspace = Category::workspace;

}  // namespace

RuntimeUnits::RuntimeUnits(const Transformer& m, const Layout& l, int threads, Books& books)
    : books_(books),
      layers_(static_cast<int>(m.layers)),
      threads_(threads),
      recomputes_attention_(l.recompute == Recompute::selective),
      narrow_(wide_dtype(l.precision) != l.precision),
      sequences_(l.micro_batch),
      length_(l.sequence_length),
      tokens_(sequences_ * length_),
      width_(m.width),
      hidden_(m.hidden),
      heads_(m.heads),
      vocabulary_(m.vocabulary),
      wide_(size_of(wide_dtype(l.precision)).value),
      x_(tokens_ * width_ * size_of(l.precision).value),
      h_(tokens_ * hidden_ * size_of(l.precision).value),
      logits_(tokens_ * vocabulary_ * size_of(l.precision).value),
      row_(tokens_ * wide_),
      attended_(x_ + heads_ * row_),
      norm_(x_ + 2 * row_) {}

// Tokens and targets.
void RuntimeUnits::begin_micro_batch() {
  books_.take(activations, 2 * tokens_ * size_of(DType::i32).value);
}

void RuntimeUnits::end_micro_batch() {
  books_.give(activations, 2 * tokens_ * size_of(DType::i32).value);
}

void RuntimeUnits::forward(int unit) {
  if (unit == 0) {
    books_.take(activations, x_);
  } else if (is_block(unit)) {
    block_forward();
  } else {
    head_forward();
  }
}

void RuntimeUnits::drop_saved(int unit) {
  if (is_block(unit)) {
    books_.give(activations, 4 * x_ + h_ + (recomputes_attention_ ? 0 : attended_));
  }
}

void RuntimeUnits::take_loss() {
  books_.give(activations, row_);
}

void RuntimeUnits::drop_output() {
  books_.give(activations, x_);
}

void RuntimeUnits::backward(int unit) {
  if (unit == 0) {
    books_.give(activations, x_);  // dy
  } else if (is_block(unit)) {
    block_backward();
  } else {
    head_backward();
  }
}

// A norm's output, without the statistics that it was computed with.
void RuntimeUnits::take_normalized() {
  books_.take(workspace, norm_);
  books_.give(workspace, norm_ - x_);
}

// Keeps qkv (3 C), attended and log-sum-exps, middle (C), hidden (H).
void RuntimeUnits::block_forward() {
  const Category attended = recomputes_attention_ ? workspace : activations;
  take_normalized();
  books_.take(activations, 3 * x_);
  touch_linear(3 * width_, width_);
  books_.give(workspace, x_);
  books_.take(attended, attended_);
  touch_attention(false);
  books_.take(activations, x_);
  touch_linear(width_, width_);
  if (recomputes_attention_) {
    books_.give(attended, attended_);
  }

  books_.take(workspace, norm_);
  books_.take(activations, h_);
  touch_linear(hidden_, width_);
  books_.take(workspace, h_);
  books_.take(activations, x_);  // y
  touch_linear(width_, hidden_);
  books_.give(workspace, h_ + norm_);
}

void RuntimeUnits::block_backward() {
  const Category attended = recomputes_attention_ ? workspace : activations;
  books_.take(workspace, h_);
  touch_linear_backward(width_, hidden_);
  books_.give(activations, h_);
  books_.take(workspace, norm_);
  touch_linear_backward(hidden_, width_);
  touch_norm_backward();
  books_.give(activations, x_);  // middle
  books_.give(workspace, h_ + norm_);

  if (recomputes_attention_) {
    books_.take(attended, attended_);
    touch_attention(false);
  }
  books_.take(workspace, x_);
  touch_linear_backward(width_, width_);
  books_.take(workspace, 3 * x_);
  touch_attention(true);
  books_.give(attended, attended_);
  books_.give(activations, 3 * x_);
  books_.give(workspace, x_);
  books_.take(workspace, norm_);
  touch_linear_backward(3 * width_, width_);
  touch_norm_backward();
  books_.give(workspace, 3 * x_ + norm_);
  books_.give(activations, x_);  // the input
}

// Keeps log-sum-exps and logits; the losses are the output.
void RuntimeUnits::head_forward() {
  take_normalized();
  books_.take(activations, logits_);
  touch_linear(vocabulary_, width_);
  books_.give(workspace, x_);
  books_.take(activations, 2 * row_);
}

void RuntimeUnits::head_backward() {
  books_.take(workspace, norm_);
  touch_linear_backward(vocabulary_, width_);
  books_.give(activations, logits_);
  books_.take(activations, x_);
  touch_norm_backward();
  books_.give(workspace, norm_);
  books_.give(activations, row_ + x_);
}

void RuntimeUnits::touch_matmul(std::int64_t m, std::int64_t n, std::int64_t k, bool narrow_out) {
  if (narrow_) {
    const std::int64_t parts = count_parts(threads_, std::max(m, n), matmul_grain(m, n, k));
    books_.touch(workspace, parts * NarrowTile::of(m, n, k).workspace_elements(narrow_out) *
                                size_of(DType::f32).value);
  }
}

void RuntimeUnits::touch_linear(std::int64_t outputs, std::int64_t inputs) {
  touch_matmul(tokens_, outputs, inputs, true);
}

void RuntimeUnits::touch_linear_backward(std::int64_t outputs, std::int64_t inputs) {
  touch_matmul(outputs, inputs, tokens_, false);  // the weight's gradient is wide
  touch_matmul(tokens_, inputs, outputs, true);
}

void RuntimeUnits::touch_norm_backward() {
  const std::int64_t parts = count_parts(threads_, tokens_, rows_per_part(width_));
  books_.touch(workspace, parts * 2 * width_ * wide_);
}

void RuntimeUnits::touch_attention(bool backward) {
  const std::int64_t tile = attention_tile(length_);
  const std::int64_t parts = count_parts(threads_, sequences_ * heads_, 1);
  const std::int64_t of_part = backward ? 2 * tile * length_ + tile : tile * length_;
  // Operands of narrow formats, widened: qkv and y; in backward their gradients, too.
  const std::int64_t widened = narrow_ ? (backward ? 8 : 4) * tokens_ * width_ : 0;
  books_.touch(workspace, (parts * of_part + widened) * wide_);
}

}  // namespace ringworld
