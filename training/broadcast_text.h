// A text from one rank to all: error messages.
#pragma once

#include <string>

#include "collectives/communicator.h"

namespace ringworld {

// The text that `root` holds, on every rank; what the others pass is not looked at.
std::string broadcast_text(Communicator& communicator, const std::string& text, int root);

}  // namespace ringworld
