// What would make a training fit, and how few GPUs it fits on: found by planning each change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/memory.h"

namespace ringworld {

struct MemoryAdvice {
  std::string change;  // "--sharding zero3 --recompute full"
  Layout layout;
  Bytes device;  // of the fullest GPU
};

// Changes on as many GPUs, fewest and mildest first; at most `most` that fit. None: the one that
// comes nearest, which does not fit either.
std::vector<MemoryAdvice> what_would_fit(const Transformer& model, const Layout& layout,
                                         const MemoryOptions& options, Bytes budget,
                                         std::size_t most = 3);

// The fewest GPUs that the layout fits on with more or fewer data-parallel ranks, each with as
// many micro-batches. None: not on 2^20 of them either, as with nothing sharded.
std::optional<MemoryAdvice> smallest_data_degree(const Transformer& model, const Layout& layout,
                                                 const MemoryOptions& options, Bytes budget);

// The layout with everything that saves memory on the GPU but offload: zero3, full recomputation,
// sequence parallelism where there is tensor parallelism, one sequence at a time.
Layout most_frugal(const Layout& layout);

}  // namespace ringworld
