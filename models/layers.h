// The layers that units are built of. A layer holds no tensors of its own, only which parameters it
// uses; its caller owns inputs and outputs, and so decides how long they live.
#pragma once

#include <cstdint>
#include <string>

#include "models/model.h"

namespace ringworld {

// Undefined content with x's dtype and rows: (B, T, columns).
Tensor empty_like(Backend& backend, const Tensor& x, std::int64_t columns, Category category);

// y = x weight^T + bias
struct Linear {
  Parameter* weight;          // (N, K)
  Parameter* bias = nullptr;  // (N), or none

  std::int64_t outputs() const { return weight->shape[0]; }

  // y (..., N) = ..., x (..., K)
  void forward(Backend& backend, const Tensor& y, const Tensor& x) const;
  // dx (..., K) =, dweight +=, dbias +=; dy (..., N). dx may be x: the weight's gradient comes
  // first, and nothing needs x after it.
  void backward(Backend& backend, const Tensor& dx, const Tensor& dy, const Tensor& x) const;
};

// How tensor parallelism may split a linear layer (Megatron-LM, Shoeybi et al., 2019, section 3):
// by outputs, its bias with it, or by inputs, where the bias is added once after the sum.
enum class Split { outputs, inputs };

// Adds `name`.weight (outputs, inputs) of this initial deviation, and `name`.bias (outputs), zero.
Linear add_linear(Model& model, const std::string& name, std::int64_t outputs, std::int64_t inputs,
                  double deviation, Split split);

// y = (x - mean) inverse_deviation weight + bias over the last axis
struct LayerNorm {
  Parameter* weight;  // (C)
  Parameter* bias;    // (C)

  struct Output {
    Tensor y;                  // (B, T, C)
    Tensor mean;               // (B * T) f32/f64
    Tensor inverse_deviation;  // (B * T) f32/f64
  };

  // x (B, T, C). The output is workspace: units keep x only and call forward again in backward,
  // which costs one pass over x and spares a tensor as large as x.
  Output forward(Backend& backend, const Tensor& x) const;
  // dx +=, dweight +=, dbias +=. `output` as forward returned it for x, but its y may hold dy by
  // now.
  void backward(Backend& backend, const Tensor& dx, const Tensor& dy, const Tensor& x,
                const Output& output) const;
};

// Adds `name`.weight (width), one, and `name`.bias (width), zero.
LayerNorm add_layer_norm(Model& model, const std::string& name, std::int64_t width);

// Zeroes elements at random and scales up the others (Backend::dropout). The mask of element c of
// a token is a function of the batch's seed, `stream`, the token's place in the run and c;
// backward draws it again.
struct Dropout {
  double probability = 0;
  std::uint32_t stream = 0;  // stream_of a name that no other dropout of the model has

  bool drops(const Batch& batch) const { return probability > 0 && batch.dropout_seed.has_value(); }
  // x (B, T, C) in place: the layer's output in forward, its gradient in backward.
  void apply(Backend& backend, const Batch& batch, const Tensor& x) const;
  // The gradient of the layer's input for dy (B, T, C), which is kept: dy itself when nothing is
  // dropped, else workspace.
  Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy) const;

 private:
  void drop(Backend& backend, const Batch& batch, const Tensor& out, const Tensor& x) const;
};

// y = c_proj(GELU(c_fc(x)))
struct FeedForward {
  Linear c_fc;    // (H, C)
  Linear c_proj;  // (C, H)

  // Returns y (B, T, C); x (B, T, C). Pushes c_fc's output (B, T, H). GELU's own output is computed
  // again in backward: one pass over (B, T, H) against as much memory for every layer.
  Tensor forward(Backend& backend, const Tensor& x, Saved& saved) const;
  // The part of backward before x is needed: pops what forward pushed, adds to c_proj's gradients
  // and returns the gradient of c_fc's output (B, T, H). c_fc.backward is the rest.
  Tensor backward_to_hidden(Backend& backend, const Tensor& dy, Saved& saved) const;
};

}  // namespace ringworld
