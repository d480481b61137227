// Which of our runtime's models and layouts is meant by a plan's, and what it does not train.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "parallel/parallelize.h"
#include "planner/layout.h"
#include "planner/transformer.h"

namespace ringworld {

// Why our runtime does not train this; empty: it does.
std::string runtime_refusal(const Transformer& model, const Layout& layout);

// What the runtime is to be asked for. `model` and `layout` as runtime_refusal() lets pass.
ModelOptions runtime_model(const Transformer& model, const Layout& layout);
ParallelOptions runtime_parallel(const Layout& layout);

// Layers of each part of the chain, first to last: those of the layout, or as the runtime divides
// them where it does not say.
std::vector<std::int64_t> runtime_part_layers(const Transformer& model, const Layout& layout);

}  // namespace ringworld
