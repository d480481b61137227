// What the units of a GPT-2 take from the device and give back, in bytes: models/gpt2.cpp,
// embedding.cpp and head.cpp without their tensors. With B T the tokens of a micro-batch, C the
// width, H the hidden width, V the vocabulary.
#pragma once

#include <cstdint>

#include "planner/layout.h"
#include "planner/runtime_books.h"
#include "planner/transformer.h"

namespace ringworld {

class RuntimeUnits {
 public:
  RuntimeUnits(const Transformer& model, const Layout& layout, int threads, Books& books);

  void begin_micro_batch();
  void end_micro_batch();
  // Unit 0 is the embedding, the last the head; all between are blocks. Each takes its output; its
  // input has been taken.
  void forward(int unit);
  // Everything but input and output.
  void drop_saved(int unit);
  // The tokens' losses have been summed up.
  void take_loss();
  // Of a unit that was computed again.
  void drop_output();
  // Gives back what forward kept and the input; dy, of the input's size, becomes dx.
  void backward(int unit);

 private:
  bool is_block(int unit) const { return unit > 0 && unit <= layers_; }
  void block_forward();
  void block_backward();
  void head_forward();
  void head_backward();
  void touch_matmul(std::int64_t m, std::int64_t n, std::int64_t k, bool narrow_out);
  // Of a product y = x w^T with `inputs` and `outputs` columns.
  void touch_linear(std::int64_t outputs, std::int64_t inputs);
  void touch_linear_backward(std::int64_t outputs, std::int64_t inputs);
  void take_normalized();
  void touch_norm_backward();
  void touch_attention(bool backward);

  Books& books_;
  const int layers_;
  const int threads_;
  const bool recomputes_attention_;
  const bool narrow_;  // 16-bit formats: kernels widen
  const std::int64_t sequences_;
  const std::int64_t length_;
  const std::int64_t tokens_;
  const std::int64_t width_;   // C
  const std::int64_t hidden_;  // H
  const std::int64_t heads_;
  const std::int64_t vocabulary_;  // V
  const std::int64_t wide_;        // bytes of a statistic
  const std::int64_t x_;           // bytes of (B, T, C)
  const std::int64_t h_;           // bytes of (B, T, H)
  const std::int64_t logits_;      // bytes of (B, T, V)
  const std::int64_t row_;         // bytes of a statistic of each token
  const std::int64_t attended_;    // bytes of attention's output and log-sum-exps
  const std::int64_t norm_;        // bytes of a norm's output and statistics
};

}  // namespace ringworld
