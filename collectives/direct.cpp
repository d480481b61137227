// Direct algorithms: every rank exchanges with every other one in a single step. The fewest steps
// there are, P - 1 messages in each; the transport decides how many of them really run at a time.
//
// Contributions are kept apart until all are there and are added in the order of the ranks, so the
// result is, bit for bit, the sum of a loop over the ranks, however the buffer is cut.
//
// Source: linear algorithms in Pjesivac-Grbovic et al., "Performance analysis of MPI collective
// operations", Cluster Computing 10 (2007).
#include <vector>

#include "collectives/schedule.h"

namespace ringworld {

namespace {

// chunk = held[0] (op) held[1] (op) ..., where held[rank] is `chunk` itself.
void emit_sum_in_rank_order(Schedule& schedule, int chunk, const std::vector<int>& held) {
  for (std::size_t i = 1; i < held.size(); ++i) {
    schedule.reduce(held[0], held[i]);
  }
  if (held[0] != chunk) {
    schedule.copy(chunk, held[0]);
  }
}

// Rank r gets everybody's chunk r; everybody gets its chunk from r.
void emit_reduce_scatter(Schedule& schedule, int rank, int ranks) {
  std::vector<int> held;
  for (int peer = 0; peer < ranks; ++peer) {
    held.push_back(peer == rank ? rank : schedule.add_scratch(rank));
  }
  schedule.begin_step();
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank) {
      schedule.send(peer, peer);
      schedule.receive(peer, held[static_cast<std::size_t>(peer)]);
    }
  }
  schedule.begin_step();
  emit_sum_in_rank_order(schedule, rank, held);
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

Schedule direct_reduce(int rank, int ranks, int root) {
  Schedule schedule(1);
  schedule.begin_step();
  if (rank != root) {
    schedule.send(root, 0);
    return schedule;
  }
  std::vector<int> held;
  for (int peer = 0; peer < ranks; ++peer) {
    held.push_back(peer == root ? 0 : schedule.add_scratch(0));
    if (peer != root) {
      schedule.receive(peer, held.back());
    }
  }
  schedule.begin_step();
  emit_sum_in_rank_order(schedule, 0, held);
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
