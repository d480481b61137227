// A shard map summed up: ranks that have the same, and layers that are alike.
#pragma once

#include <string>
#include <vector>

#include "cli/shard_map.h"

namespace ringworld {

// Ranks that hold the same elements of a tensor, and of which of its states.
struct ShardGroup {
  std::vector<ModelState> states;
  std::vector<int> ranks;
  std::string slice;  // "all of (384, 128)", "rows 0:64", "elements 0:512 of (128)"
  std::string kind;   // "whole", "replica x4", "shard", "shard x2"
  Bytes bytes;        // of all these states, on each of the ranks; where they differ, the most
  bool operator==(const ShardGroup&) const = default;
};

// In the order of states and first ranks. Where more than `most_shards` groups have the same
// states, they are one; 0: never.
std::vector<ShardGroup> group_shards(const ShardMap& map, const MappedTensor& tensor,
                                     std::size_t most_shards);

// A tensor, or the equal ones of consecutive layers.
struct FoldedTensor {
  std::string name;       // "h.0.attn.c_attn.weight", "h.0..11.attn.c_attn.weight"
  std::size_t first = 0;  // of the map's tensors
  std::vector<ShardGroup> groups = {};
};
std::vector<FoldedTensor> fold_layers(const ShardMap& map, std::size_t most_shards);

// What a rank holds, in words: as ShardGroup::slice; "-" for nothing.
std::string slice_text(const MappedTensor& tensor, const RankPart& part, const Range& held);

// "0-3", "0 2 5", "0-12 by 4".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace ringworld
