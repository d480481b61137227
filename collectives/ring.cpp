// The ring: rank r sends only to its right neighbour r + 1 and receives only from its left
// neighbour r - 1, counted around the ring. Every link carries one chunk in every step, which makes
// the ring optimal in bandwidth for any number of ranks; its latency grows with the ranks.
//
// Sources: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", JPDC 69 (2009), for reduce-scatter, all-gather and their composition; broadcast is
// the pipeline of Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations",
// Cluster Computing 10 (2007).
#include "collectives/schedule.h"

namespace ringworld {

namespace {

// Positions on the ring: any integer stands for a rank, or for the chunk of that number.
int on_ring(int position, int ranks) {
  return (position % ranks + ranks) % ranks;
}

// The buffer is cut into P chunks. Chunk c travels once around the ring, from rank c + 1 on to rank
// c, and every rank on the way adds its own contribution:
//  - rank r starts with the chunk that it is the origin of: it sends chunk r - 1 in step 0;
//  - what arrives in step s is what the left neighbour sent, so if r sends chunk r - 1 - s, then
//    r receives chunk (r - 1) - 1 - s = r - 2 - s, and that is the chunk r sends in step s + 1;
//  - in the last step, s = P - 2, rank r receives chunk r - P, which is chunk r, complete.
void emit_ring_reduce_scatter(Schedule& schedule, int rank, int ranks) {
  const int right = on_ring(rank + 1, ranks);
  const int left = on_ring(rank - 1, ranks);
  for (int s = 0; s < ranks - 1; ++s) {
    schedule.begin_step();
    schedule.send(right, on_ring(rank - 1 - s, ranks));
    schedule.receive_reduce(left, on_ring(rank - 2 - s, ranks));
  }
}

// Rank r begins with chunk r complete. In step s it passes on chunk r - s, which is its own in step
// 0 and what arrived one step before from then on; P - 1 steps bring it every other chunk.
void emit_ring_all_gather(Schedule& schedule, int rank, int ranks) {
  const int right = on_ring(rank + 1, ranks);
  const int left = on_ring(rank - 1, ranks);
  for (int s = 0; s < ranks - 1; ++s) {
    schedule.begin_step();
    schedule.send(right, on_ring(rank - s, ranks));
    schedule.receive(left, on_ring(rank - 1 - s, ranks));
  }
}

}  // namespace

Schedule ring_reduce_scatter(int rank, int ranks, int /*root*/) {
  Schedule schedule(ranks);
  emit_ring_reduce_scatter(schedule, rank, ranks);
  return schedule;
}

Schedule ring_all_gather(int rank, int ranks, int /*root*/) {
  Schedule schedule(ranks);
  emit_ring_all_gather(schedule, rank, ranks);
  return schedule;
}

// Reduce-scatter leaves chunk r complete on rank r, which is where all-gather begins.
Schedule ring_all_reduce(int rank, int ranks, int /*root*/) {
  Schedule schedule(ranks);
  emit_ring_reduce_scatter(schedule, rank, ranks);
  emit_ring_all_gather(schedule, rank, ranks);
  return schedule;
}

// A chain: the ring, cut before the root. A rank passes chunk k - 1 on while chunk k arrives. With
// K chunks the last one reaches the end of the chain after K + P - 2 steps of n / K elements; K = 2
// P keeps that below 3/2 of the n elements that the last rank must receive in any case, while small
// buffers are not cut into crumbs.
Schedule ring_broadcast(int rank, int ranks, int root) {
  const int chunks = 2 * ranks;
  Schedule schedule(chunks);
  const bool first = rank == root;
  const bool last = on_ring(rank + 1, ranks) == root;
  for (int k = 0; k <= chunks; ++k) {
    schedule.begin_step();
    if (!first && k < chunks) {
      schedule.receive(on_ring(rank - 1, ranks), k);
    }
    if (!last && k > 0) {
      schedule.send(on_ring(rank + 1, ranks), k - 1);
    }
  }
  return schedule;
}

}  // namespace ringworld
