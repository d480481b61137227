// A shard map as a picture.
#pragma once

#include <string>
#include <string_view>

#include "cli/shard_map.h"

namespace ringworld {

// An HTML page: a row for each tensor, equal layers folded, and a column for each rank. In a cell
// are three boxes, one for each state, that stand for the whole tensor, first axis down and second
// across, and are filled where the rank holds it. The pointer over it tells elements and bytes.
std::string to_html(const ShardMap& map, std::string_view title);

}  // namespace ringworld
