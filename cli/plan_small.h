// A planned layout in small, as a command that runs here.
#pragma once

#include <string>

#include "planner/layout.h"
#include "planner/transformer.h"

namespace ringworld {

// At most 8 ranks, and a tiny model of the same family.
struct SmallTraining {
  Transformer model;
  Layout layout;
  std::string left_out;  // of the layout, as the runtime has it not; empty: nothing
};
SmallTraining in_small(const Transformer& model, const Layout& layout);

// A line that says what is left out, and the command behind it.
std::string small_text(const Transformer& model, const Layout& layout);

}  // namespace ringworld
