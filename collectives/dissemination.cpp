// The dissemination barrier: after the step with distance m a rank has heard, directly or through
// others, from the 2 m - 1 ranks before it.
//
// Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", IJPP 17 (1988).
#include "collectives/schedule.h"

namespace ringworld {

Schedule dissemination_barrier(int rank, int ranks, int /*root*/) {
  Schedule schedule(1);
  if (ranks == 1) {
    return schedule;
  }
  const int heard = schedule.add_scratch(0);
  for (int distance = 1; distance < ranks; distance *= 2) {
    schedule.begin_step();
    if (distance > 1) {
      schedule.reduce(0, heard);
    }
    schedule.send((rank + distance) % ranks, 0);
    schedule.receive((rank - distance + ranks) % ranks, heard);
  }
  schedule.begin_step();
  schedule.reduce(0, heard);
  return schedule;
}

}  // namespace ringworld
