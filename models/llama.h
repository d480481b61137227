// Llama (Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023, and "Llama
// 2", 2023; Grattafiori et al., "The Llama 3 Herd of Models", 2024): RMS norms, rotary positions,
// grouped-query attention and SwiGLU, and no biases.
//
// Parameters carry the names of Hugging Face's checkpoints; weights are stored (outputs, inputs).
// Queries, keys and values are one weight here, self_attn.qkv_proj, and so are gate and up,
// mlp.gate_up_proj: the checkpoint's weights one below the other, in this order.
#pragma once

#include <memory>

#include "models/model.h"

namespace ringworld {

// Every dimension is given and has been checked.
std::unique_ptr<Model> make_llama(const ModelOptions& dimensions, DType dtype,
                                  const TensorParallel* tensor);

}  // namespace ringworld
