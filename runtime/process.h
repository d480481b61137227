// What the operating system knows of processes.
#pragma once

#include <cstdint>

#include "runtime/bytes.h"

namespace ringworld {

// The largest resident size that this process has had: everything in memory, the program and its
// libraries included.
Bytes peak_resident_size();

// A handle that poll finds readable when the process has ended; -1 where there are none.
int open_process(std::int64_t process);

}  // namespace ringworld
