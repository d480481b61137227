// What the operating system knows of this process.
#pragma once

#include "runtime/bytes.h"

namespace ringworld {

// The largest resident size that this process has had: everything in memory, the program and its
// libraries included.
Bytes peak_resident_size();

}  // namespace ringworld
