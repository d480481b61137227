// What the units of a GPT-2 or a Llama take from the device and give back, in bytes:
// models/embedding.cpp, block.cpp, mlp.cpp, layers.cpp, norm.cpp and head.cpp without their
// tensors, on tensor rank 0, whose parts are the largest.
//
// With B T the tokens of a micro-batch, C the width, H the hidden width, V the vocabulary, D a
// head's size; what has a ' is this rank's part. Between units are a seam's rows of (B, T, C): all
// of them, or with sequence parallelism this rank's.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "planner/layout.h"
#include "planner/runtime_books.h"
#include "planner/transformer.h"

namespace ringworld {

enum class UnitKind : std::uint8_t { embedding, block, head };

// What backward needs, and what of it has been put off: Saved (models/model.h).
class SavedBooks {
 public:
  void push(Held held) { held_.push_back(std::move(held)); }
  Held pop() {
    Held last = std::move(held_.back());
    held_.pop_back();
    return last;
  }
  void put_off_weights() { puts_off_ = true; }

 private:
  friend class RuntimeUnits;
  struct WeightGradient {
    std::int64_t outputs;
    std::int64_t inputs;
    Held dy;
    Held x;
  };
  std::vector<Held> held_;
  bool puts_off_ = false;
  std::vector<WeightGradient> weights_;
};

class RuntimeUnits {
 public:
  // `model` as runtime_refusal() lets pass. The books outlive this.
  RuntimeUnits(const Transformer& model, const Layout& layout, int threads, Books& books);

  // Tokens and targets.
  Held batch();
  // A seam's rows, from another stage or for one.
  Held between_units();
  // x is null for the embedding. The head returns the tokens' losses.
  Held forward(UnitKind unit, const Held& x, SavedBooks& saved);
  // dy is null for the head, and may come back. The embedding returns null.
  Held backward(UnitKind unit, const Held& dy, SavedBooks& saved);
  void add_weight_gradients(SavedBooks& saved);

 private:
  struct Norm {
    Held y;
    Held statistics;
  };
  struct Attention {
    Held attended;
    Held log_sum_exp;
  };
  // y = x w^T, whatever the bias; this rank's columns.
  struct Linear {
    std::int64_t outputs;
    std::int64_t inputs;
  };

  Held workspace(std::int64_t bytes) { return books_.hold(Category::workspace, bytes); }
  Held activations(std::int64_t bytes) { return books_.hold(Category::activations, bytes); }

  Held block_forward(const Held& x, SavedBooks& saved);
  Held block_backward(const Held& dy, SavedBooks& saved);
  Held head_forward(const Held& x, SavedBooks& saved);
  Held head_backward(SavedBooks& saved);
  Held mlp_forward(SavedBooks& saved);
  Held mlp_backward_to_hidden(const Held& dy, SavedBooks& saved);

  Norm norm();
  Attention attend(Category category);
  void through_norm(const Held& dy, const Linear& linear, SavedBooks& saved);

  // Of seams: parallel/tensor_ranks.cpp.
  Held gather(const Held& x);
  Held reduce(const Held& partial, Category category);
  Held forward_summed(const Linear& linear);

  void linear_forward(const Linear& linear);
  Held linear_backward(const Linear& linear, const Held& dx, const Held& dy, const Held& x,
                       SavedBooks& saved);
  Held keep(const Held& x, const Held& changes, const SavedBooks& saved);

  // What kernels take while they run: runtime/cpu/workspace.h. Rotary positions' few numbers and
  // the losses of a split vocabulary are left out: norms always hold more.
  void touch_matmul(std::int64_t m, std::int64_t n, std::int64_t k, bool narrow_out);
  void touch_norm_backward();
  void touch_attention(bool backward);

  Books& books_;
  const int threads_;
  const bool recomputes_attention_;
  const bool narrow_;  // 16-bit formats: kernels widen
  const bool layer_norm_;
  const bool gated_;
  const bool sequence_parallel_;  // seams leave rows
  const std::int64_t tensor_;
  const std::int64_t sequences_;
  const std::int64_t length_;
  const std::int64_t tokens_;
  const std::int64_t rows_;       // of a seam
  const std::int64_t width_;      // C
  const std::int64_t hidden_;     // H'
  const std::int64_t heads_;      // of this rank
  const std::int64_t kv_heads_;   // of this rank
  const std::int64_t head_size_;  // D
  const std::int64_t value_;      // bytes of an element
  const std::int64_t wide_;       // bytes of a statistic
  const Linear qkv_;
  const Linear projection_;
  const Linear c_fc_;
  const Linear c_proj_;
  const Linear logits_;
};

}  // namespace ringworld
