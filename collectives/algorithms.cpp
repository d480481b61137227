// The table of algorithms. A new one is a file that defines its emit function, the declaration of
// that function here, and a row.
#include <fmt/format.h>

#include "collectives/schedule.h"
#include "runtime/error.h"

namespace ringworld {

Schedule ring_all_reduce(int rank, int ranks, int root);      // ring.cpp
Schedule ring_reduce_scatter(int rank, int ranks, int root);  // ring.cpp
Schedule ring_all_gather(int rank, int ranks, int root);      // ring.cpp
Schedule ring_broadcast(int rank, int ranks, int root);       // ring.cpp

namespace {

using Count = std::int64_t;

// name, operation, emit, steps(P), elements sent(P, n)
constexpr Algorithm table[] = {
    {"ring", Operation::all_reduce, ring_all_reduce,  //
     [](int p) -> Count { return 2 * (p - 1); },      //
     [](int p, Count n) -> Count { return 2 * (p - 1) * n; }},
    {"ring", Operation::reduce_scatter, ring_reduce_scatter,  //
     [](int p) -> Count { return p - 1; },                    //
     [](int p, Count n) -> Count { return (p - 1) * n; }},
    {"ring", Operation::all_gather, ring_all_gather,  //
     [](int p) -> Count { return p - 1; },            //
     [](int p, Count n) -> Count { return (p - 1) * n; }},
    {"ring", Operation::broadcast, ring_broadcast,               //
     [](int p) -> Count { return p == 1 ? 0 : 2 * p + p - 2; },  // 2 P chunks pass P - 1 links
     [](int p, Count n) -> Count { return (p - 1) * n; }},
};

}  // namespace

std::span<const Algorithm> algorithms() {
  return table;
}

const Algorithm& find_algorithm(Operation operation, std::string_view name) {
  std::string known;
  for (const Algorithm& algorithm : table) {
    if (algorithm.operation != operation) {
      continue;
    }
    if (algorithm.name == name) {
      return algorithm;
    }
    known += known.empty() ? "" : ", ";
    known += algorithm.name;
  }
  throw UsageError(fmt::format("there is no algorithm \"{}\" for {}; choose one of: {}", name,
                               name_of(operation), known));
}

}  // namespace ringworld
