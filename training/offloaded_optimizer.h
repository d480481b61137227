// An optimizer whose state is in another tier than the shards.
#pragma once

#include <memory>
#include <vector>

#include "training/optimizer.h"

namespace ringworld {

// As make_optimizer with a level that is not none. The shards are of one dtype, and so are their
// gradients.
std::unique_ptr<Optimizer> make_offloaded_optimizer(const OptimizerOptions& options,
                                                    const std::vector<Shard>& shards,
                                                    Backend& backend,
                                                    const OffloadOptions& offload);

}  // namespace ringworld
