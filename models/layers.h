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
  // The same where the weight may be split by inputs: x (B, T, K) and K are this device's. Returns
  // y as `tensor` leaves it at a seam, activations. The bias is in the sum once.
  Tensor forward_summed(Backend& backend, const TensorParallel& tensor, const Tensor& x,
                        const std::string& label) const;
  // Returns dx (..., K); dweight +=, dbias +=; dy (..., N). dx is computed in `dx`, which may be x:
  // the weight's gradient comes first, and nothing needs x after it. Where `saved` puts off weights'
  // gradients, dy and x are kept for that, so nobody may change dy, and x is not overwritten.
  Tensor backward(Backend& backend, const Tensor& dx, const Tensor& dy, const Tensor& x,
                  Saved& saved) const;
};

// How tensor parallelism splits a linear layer (Megatron-LM, Shoeybi et al., 2019, section 3): by
// outputs, its bias with it, or by inputs, where the products are to be summed.
enum class Split { outputs, inputs };

// Adds `name`.weight (outputs, inputs) of this initial deviation, and, where it is to have one,
// `name`.bias (outputs), zero. `sections`: of the outputs, as in Parameter.
struct LinearOptions {
  double deviation = 0;
  Split split = Split::outputs;
  bool bias = true;
  std::vector<std::int64_t> sections = {};
};
Linear add_linear(Model& model, const std::string& name, std::int64_t outputs, std::int64_t inputs,
                  const LinearOptions& options);

// Zeroes elements at random and scales up the others (Backend::dropout). The mask of element c of
// a token is a function of the batch's seed, `stream`, the token's place in the run and c;
// backward draws it again.
struct Dropout {
  double probability = 0;
  std::uint32_t stream = 0;  // stream_of a name that no other dropout of the model has
  const TensorParallel* tensor = nullptr;  // of the model; x is what a seam leaves

  bool drops(const Batch& batch) const { return probability > 0 && batch.dropout_seed.has_value(); }
  // x (B, T, C) in place: the layer's output in forward, its gradient in backward.
  void apply(Backend& backend, const Batch& batch, const Tensor& x) const;
  // The gradient of the layer's input for dy (B, T, C), which is kept: dy itself when nothing is
  // dropped, else workspace.
  Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy) const;

 private:
  void drop(Backend& backend, const Batch& batch, const Tensor& out, const Tensor& x) const;
};

// y = c_proj(GELU(c_fc(x))), from seam to seam; H is this device's.
struct FeedForward {
  Linear c_fc;    // (H, C)
  Linear c_proj;  // (C, H)
  const TensorParallel* tensor;

  // Returns y (B, T, C); x (B, T, C), gathered. Pushes c_fc's output (B, T, H). GELU's own output
  // is computed again in backward: one pass over (B, T, H) against as much memory for every layer.
  Tensor forward(Backend& backend, const Tensor& x, Saved& saved, const std::string& label) const;
  // The part of backward before x is needed: pops what forward pushed, adds to c_proj's gradients
  // and returns the gradient of c_fc's output (B, T, H), for dy (B, T, C), gathered, which must not
  // change if weights' gradients are put off. c_fc.backward is the rest.
  Tensor backward_to_hidden(Backend& backend, const Tensor& dy, Saved& saved) const;
};

}  // namespace ringworld
