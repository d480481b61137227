// All-reduce in two levels: within nodes, and between them.
//
// Source of the two levels: Kielmann et al., "MagPIe: MPI's collective communication operations for
// clustered wide area systems", PPoPP (1999).
#pragma once

#include <string_view>

#include "collectives/algorithm.h"

namespace ringworld {

// Of P ranks, node i has the P / nodes ranks from i P / nodes on; `nodes` must divide P. Composed
// of registered algorithms: reduce_scatter within each node, all_reduce between the ranks that hold
// the same part in all nodes, all_gather within each node. Only 1 / (ranks of a node) of the buffer
// of each rank goes between nodes. Its name is
// "hierarchical:NODES:REDUCE_SCATTER:ALL_REDUCE:ALL_GATHER". Throws UsageError when one of the
// three is unknown.
Algorithm hierarchical_all_reduce(int nodes, std::string_view reduce_scatter,
                                  std::string_view between, std::string_view all_gather);

// find_algorithm, but "hierarchical:NODES:REDUCE_SCATTER:ALL_REDUCE:ALL_GATHER" is composed and
// registered when it is asked for first; before communicators are used, as register_algorithm.
const Algorithm& find_or_compose(Operation operation, std::string_view name);

}  // namespace ringworld
