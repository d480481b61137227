// The transformer block of GPT-2 and Llama: a norm before attention and one before the feed-forward
// layer, each of which adds to the residual.
#pragma once

#include <string>

#include "models/layers.h"
#include "models/norm.h"

namespace ringworld {

// Of initial weights: GPT-2's. Llama's are not published; Hugging Face's configuration has the
// same.
inline constexpr double weight_deviation = 0.02;

struct BlockLayers {
  Norm norm_1;
  Linear qkv;         // ((heads + 2 kv_heads) D, C): queries, keys, values
  Linear projection;  // (C, heads D)
  Norm norm_2;
  FeedForward mlp;
};

// y = middle + dropout(mlp(norm_2(middle))),
// middle = x + dropout(projection(attention(rotary(qkv(norm_1(x)))))); rotary only where the model
// has a rope_theta.
//
// x, middle and y are what seams of tensor parallelism leave: (B, T, C), or with sequence
// parallelism this device's rows of it, (1, rows, C). Heads and widths with a ' are this device's.
//
// Saved for a token, in elements: x C, qkv (heads' + 2 kv_heads') D, middle C, what mlp saves and,
// unless attention is computed again, attended heads' D and one log-sum-exp for each head. The
// outputs of norms are always computed again in backward.
class Block : public Unit {
 public:
  // Of `options` those of attention and dropout; the layers are the model's.
  Block(std::string name, const Model& model, const ModelOptions& options,
        const BlockLayers& layers);

  Tensor forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) override;
  Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy, Saved& saved) override;

  SeamCrossings forward_seams() const override { return {.gathers = 2, .reduces = 2}; }
  SeamCrossings backward_seams() const override { return {.gathers = 4, .reduces = 2}; }

 private:
  struct Attention {
    Tensor attended;     // (B, T, heads' D)
    Tensor log_sum_exp;  // (B, heads', T)
  };

  Tensor gather(Backend& backend, const Batch& batch, const Tensor& x,
                const std::string& label) const;
  void rotate(Backend& backend, const Tensor& qkv, int sign) const;
  Attention attend(Backend& backend, const Tensor& qkv, Category category) const;
  Tensor attention(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) const;
  void attention_backward(Backend& backend, const Batch& batch, const Tensor& dx,
                          Saved& saved) const;
  Tensor feed_forward(Backend& backend, const Batch& batch, const Tensor& middle,
                      Saved& saved) const;
  void feed_forward_backward(Backend& backend, const Batch& batch, const Tensor& dmiddle,
                             Saved& saved) const;
  void through_norm(Backend& backend, const Batch& batch, const Tensor& dx, const Tensor& dy,
                    const Tensor& x, const Norm& norm, const Linear& linear, Saved& saved,
                    const std::string& label) const;

  const TensorParallel& tensor_;
  int heads_;     // of this device
  int kv_heads_;  // of this device
  double rope_theta_;
  bool recompute_attention_;
  BlockLayers layers_;
  Dropout attention_dropout_;  // of projection's output
  Dropout mlp_dropout_;        // of mlp's output
  std::string attention_label_;
  std::string mlp_label_;
};

}  // namespace ringworld
