// A small language model without attention: every token is predicted from the one before it alone.
// It is the simplest chain of units there is, and takes sequences of any length.
#pragma once

#include <memory>

#include "models/model.h"

namespace ringworld {

// Layers, width, hidden and vocabulary are given and have been checked.
std::unique_ptr<Model> make_mlp(const ModelOptions& dimensions, DType dtype,
                                const TensorParallel* tensor);

}  // namespace ringworld
