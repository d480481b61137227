// The norm before a linear layer: layer norm, which has a bias, or RMS norm, which has none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"

namespace ringworld {

// Over the last axis. Layer norm (Ba et al., 2016): y = (x - mean) inverse_deviation weight + bias.
// RMS norm (Zhang and Sennrich, 2019): y = x inverse_deviation weight, with the root mean square as
// the deviation.
struct Norm {
  Parameter* weight;      // (C)
  Parameter* bias;        // (C), or nullptr: an RMS norm
  double epsilon = 1e-5;  // what GPT-2 and Llama were trained with

  std::vector<Parameter*> parameters() const;

  struct Output {
    Tensor y;                  // (B, T, C)
    Tensor mean;               // (B * T) f32/f64; an RMS norm has none
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
Norm add_layer_norm(Model& model, const std::string& name, std::int64_t width);
// Adds `name`.weight (width), one.
Norm add_rms_norm(Model& model, const std::string& name, std::int64_t width);

}  // namespace ringworld
