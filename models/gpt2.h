// GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): embedding,
// pre-norm transformer blocks, and a head whose weight is the token embedding's. Parameters carry
// the names of Hugging Face's checkpoints; weights are stored (outputs, inputs).
#pragma once

#include <memory>

#include "models/model.h"

namespace ringworld {

// Every dimension is given and has been checked.
std::unique_ptr<Model> make_gpt2(const ModelOptions& dimensions, DType dtype,
                                 const TensorParallel* tensor);

}  // namespace ringworld
