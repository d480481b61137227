// A shard map as text, at most 100 columns wide.
#pragma once

#include <string>

#include "cli/shard_map.h"

namespace ringworld {

// Who holds what of each tensor, equal layers folded and many shards summed up; of one tensor,
// every slice.
std::string tensors_text(const ShardMap& map);

// What every rank holds of the whole model, and how often the model exists over all of them.
std::string ranks_table(const ShardMap& map);

}  // namespace ringworld
