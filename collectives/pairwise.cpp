// Pairwise exchange: in step s every rank sends to the one s behind it and receives from the one s
// before it, counted around, so that nothing passes through a third rank.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19 (2005).
#include "collectives/schedule.h"

namespace ringworld {

Schedule pairwise_reduce_scatter(int rank, int ranks, int /*root*/) {
  Schedule schedule(ranks);
  for (int s = 1; s < ranks; ++s) {
    const int to = (rank + s) % ranks;
    const int from = (rank - s + ranks) % ranks;
    schedule.begin_step();
    schedule.send(to, to);
    schedule.receive_reduce(from, rank);
  }
  return schedule;
}

Schedule pairwise_all_to_all(int rank, int ranks, int /*root*/) {
  Schedule schedule(2 * ranks);
  schedule.begin_step();
  schedule.copy(ranks + rank, rank);
  for (int s = 1; s < ranks; ++s) {
    const int to = (rank + s) % ranks;
    const int from = (rank - s + ranks) % ranks;
    schedule.send(to, to);
    schedule.receive(from, ranks + from);
    schedule.begin_step();
  }
  return schedule;
}

}  // namespace ringworld
