// What the ranks that hold one copy of a model together owe each other once backward is through,
// beside data parallelism.
#pragma once

#include <string>

#include "parallel/mesh.h"
#include "parallel/strategy.h"

namespace ringworld {

// Adds up the gradients that several ranks of the model have a part of (Parameter::gradient_sum):
// those of norms over tensor ranks with sequence parallelism, and those of tied weights over first
// and last stage. After Strategy::finish_gradients; every rank calls.
void sum_model_gradients(const Mesh& mesh, Strategy& strategy);

// Of what every rank's run_micro_batches or evaluate returned, the sum over the batches of all data
// ranks; the same on every rank, which all call.
double sum_of_losses(const Mesh& mesh, double loss, std::string label);

// The norm of the whole model's gradient, every element once; the same on every rank, which all
// call. `mesh` is null for a single process.
double gradient_norm(const Mesh* mesh, Strategy& strategy);

}  // namespace ringworld
