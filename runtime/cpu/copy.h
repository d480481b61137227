// Copies past the caches, for the CPU backend.
#pragma once

#include <cstdint>

namespace ringworld {

// For more than the caches hold: what lies at `to` is not read into them first, and nothing is
// pushed out of them. The two do not overlap.
void copy_past_caches(void* to, const void* from, std::int64_t bytes);

}  // namespace ringworld
