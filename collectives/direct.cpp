// Direct algorithms: every rank exchanges with every other one in a single step. The fewest steps
// there are, P - 1 messages in each; the transport decides how many of them really run at a time.
//
// Contributions are kept apart until all are there and are added in the order of the ranks, so the
// result is, bit for bit, the sum of a loop over the ranks, however the buffer is cut. one_shot
// sends whole buffers, so that one step is all there is: the fewest that an all-reduce can have,
// for messages so short that only their number counts.
//
// Source: linear algorithms in Pjesivac-Grbovic et al., "Performance analysis of MPI collective
// operations", Cluster Computing 10 (2007).
#include <vector>

#include "collectives/schedule.h"

namespace ringworld {

namespace {

// chunk = the ranks' contributions, added in the order of the ranks; `held[peer]` is that of each
// other rank, which is only read. This rank's own, in `chunk`, is put aside until its turn comes,
// unless it is the first, or the second and only this rank adds: a + b and b + a have the same
// bits.
void emit_sum_in_rank_order(Schedule& schedule, int chunk, int rank, const std::vector<int>& held,
                            bool alone) {
  const bool in_place = rank == 0 || (rank == 1 && alone);
  const int aside = in_place ? chunk : schedule.add_scratch(chunk);
  if (!in_place) {
    schedule.copy(aside, chunk);
    schedule.copy(chunk, held[0]);
  }
  for (int peer = in_place ? 0 : 1; peer < static_cast<int>(held.size()); ++peer) {
    if (peer != rank) {
      schedule.reduce(chunk, held[static_cast<std::size_t>(peer)]);
    } else if (!in_place) {
      schedule.reduce(chunk, aside);
    }
  }
}

// A place for what each other rank contributes to `chunk`.
std::vector<int> add_places(Schedule& schedule, int chunk, int rank, int ranks) {
  std::vector<int> places;
  for (int peer = 0; peer < ranks; ++peer) {
    places.push_back(peer == rank ? -1 : schedule.add_scratch(chunk));
  }
  return places;
}

// Rank r gets everybody's chunk r and adds.
void emit_reduce_scatter(Schedule& schedule, int rank, int ranks) {
  const std::vector<int> held = add_places(schedule, rank, rank, ranks);
  schedule.begin_step();
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank) {
      schedule.send(peer, peer);
      schedule.receive(peer, held[static_cast<std::size_t>(peer)]);
    }
  }
  schedule.begin_step();
  emit_sum_in_rank_order(schedule, rank, rank, held, /*alone=*/true);
}

void emit_all_gather(Schedule& schedule, int rank, int ranks) {
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank) {
      schedule.send(peer, rank);
      schedule.receive(peer, peer);
    }
  }
}

}  // namespace

Schedule direct_reduce_scatter(int rank, int ranks, int /*root*/) {
  Schedule schedule(ranks);
  emit_reduce_scatter(schedule, rank, ranks);
  return schedule;
}

Schedule direct_all_gather(int rank, int ranks, int /*root*/) {
  Schedule schedule(ranks);
  schedule.begin_step();
  emit_all_gather(schedule, rank, ranks);
  return schedule;
}

Schedule direct_all_reduce(int rank, int ranks, int /*root*/) {
  Schedule schedule(ranks);
  emit_reduce_scatter(schedule, rank, ranks);
  emit_all_gather(schedule, rank, ranks);  // in the step that adds
  return schedule;
}

Schedule one_shot_all_reduce(int rank, int ranks, int /*root*/) {
  Schedule schedule(1);
  const std::vector<int> held = add_places(schedule, 0, rank, ranks);
  schedule.begin_step();
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank) {
      schedule.send(peer, 0);
      schedule.receive(peer, held[static_cast<std::size_t>(peer)]);
    }
  }
  schedule.begin_step();
  emit_sum_in_rank_order(schedule, 0, rank, held, /*alone=*/false);
  return schedule;
}

Schedule direct_reduce(int rank, int ranks, int root) {
  Schedule schedule(1);
  schedule.begin_step();
  if (rank != root) {
    schedule.send(root, 0);
    return schedule;
  }
  const std::vector<int> held = add_places(schedule, 0, rank, ranks);
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != root) {
      schedule.receive(peer, held[static_cast<std::size_t>(peer)]);
    }
  }
  schedule.begin_step();
  emit_sum_in_rank_order(schedule, 0, rank, held, /*alone=*/true);
  return schedule;
}

Schedule direct_broadcast(int rank, int ranks, int root) {
  Schedule schedule(1);
  schedule.begin_step();
  if (rank != root) {
    schedule.receive(root, 0);
    return schedule;
  }
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != root) {
      schedule.send(peer, 0);
    }
  }
  return schedule;
}

Schedule direct_all_to_all(int rank, int ranks, int /*root*/) {
  Schedule schedule(2 * ranks);
  schedule.begin_step();
  schedule.copy(ranks + rank, rank);
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank) {
      schedule.send(peer, peer);
      schedule.receive(peer, ranks + peer);
    }
  }
  return schedule;
}

}  // namespace ringworld
