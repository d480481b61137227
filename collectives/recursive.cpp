// Recursive doubling and halving: in every round a rank exchanges with the one whose position
// differs in one bit, so that log2 P rounds reach everybody. Numbers of ranks that are no power of
// two are folded (folding.h).
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19 (2005); halving-doubling is due to Rabenseifner.
#include <utility>

#include "collectives/folding.h"
#include "collectives/schedule.h"

namespace ringworld {

namespace {

void send_range(Schedule& schedule, int peer, int first, int end) {
  for (int chunk = first; chunk < end; ++chunk) {
    schedule.send(peer, chunk);
  }
}

void receive_range(Schedule& schedule, int peer, int first, int end) {
  for (int chunk = first; chunk < end; ++chunk) {
    schedule.receive(peer, chunk);
  }
}

void receive_reduce_range(Schedule& schedule, int peer, int first, int end) {
  for (int chunk = first; chunk < end; ++chunk) {
    schedule.receive_reduce(peer, chunk);
  }
}

// The folded rank's whole buffer goes to its neighbour, which adds it.
void emit_fold(Schedule& schedule, const Folding& fold, int rank) {
  schedule.begin_step();
  if (fold.folded(rank)) {
    send_range(schedule, rank + 1, 0, schedule.data_chunks());
  } else if (fold.in_pair(rank)) {
    receive_reduce_range(schedule, rank - 1, 0, schedule.data_chunks());
  }
}

// From rank to its folded neighbour.
void emit_unfold(Schedule& schedule, const Folding& fold, int rank, int first, int end) {
  schedule.begin_step();
  if (fold.folded(rank)) {
    receive_range(schedule, rank + 1, first, end);
  } else if (fold.in_pair(rank)) {
    send_range(schedule, rank - 1, first, end);
  }
}

// The chunks of positions `first` to `end` - 1.
struct Blocks {
  int first;
  int end;
};

// Halving: before a round with distance m, the position shares a sum in the making with the 2 m
// positions that have the same higher bits, over their 2 m parts. It sends the half that its peer
// belongs to and keeps its own, until its own part is left, reduced over all positions.
template <typename BlocksOf>
void emit_halving(Schedule& schedule, const Folding& fold, int position, const BlocksOf& blocks) {
  for (int distance = fold.core / 2; distance > 0; distance /= 2) {
    const int peer = position ^ distance;
    const int own_half = position & ~(distance - 1);
    const int peer_half = peer & ~(distance - 1);
    const Blocks sent = blocks(peer_half, peer_half + distance);
    const Blocks kept = blocks(own_half, own_half + distance);
    schedule.begin_step();
    send_range(schedule, fold.rank_at(peer), sent.first, sent.end);
    receive_reduce_range(schedule, fold.rank_at(peer), kept.first, kept.end);
  }
}

// Doubling: before a round with distance m, the position holds the m parts of the positions that
// differ from it in lower bits only; the peer has the neighbouring m.
template <typename BlocksOf>
void emit_doubling(Schedule& schedule, const Folding& fold, int position, const BlocksOf& blocks) {
  for (int distance = 1; distance < fold.core; distance *= 2) {
    const int peer = position ^ distance;
    const int own_half = position & ~(distance - 1);
    const int peer_half = peer & ~(distance - 1);
    const Blocks sent = blocks(own_half, own_half + distance);
    const Blocks received = blocks(peer_half, peer_half + distance);
    schedule.begin_step();
    send_range(schedule, fold.rank_at(peer), sent.first, sent.end);
    receive_range(schedule, fold.rank_at(peer), received.first, received.end);
  }
}

}  // namespace

// Whole buffers are exchanged. Both partners add the lower position's first, so that all ranks get
// the same bits even where the order of two operands shows (which NaN of two is passed on). What
// arrives goes to the chunk that is not being sent, and the roles of the two change where the
// partner's comes first.
Schedule recursive_doubling_all_reduce(int rank, int ranks, int /*root*/) {
  const Folding fold(ranks);
  Schedule schedule(1);
  emit_fold(schedule, fold, rank);
  if (!fold.folded(rank)) {
    const int position = fold.position(rank);
    int value = 0;
    int other = fold.core > 1 ? schedule.add_scratch(0) : 0;
    for (int distance = 1; distance < fold.core; distance *= 2) {
      const int peer = position ^ distance;
      schedule.begin_step();
      schedule.send(fold.rank_at(peer), value);
      schedule.receive(fold.rank_at(peer), other);
      schedule.begin_step();
      if (peer < position) {
        std::swap(value, other);
      }
      schedule.reduce(value, other);
    }
    if (value != 0) {
      schedule.copy(0, value);
    }
  }
  emit_unfold(schedule, fold, rank, 0, 1);
  return schedule;
}

// One chunk for each position: reduce-scatter by halving, then all-gather by doubling.
Schedule halving_doubling_all_reduce(int rank, int ranks, int /*root*/) {
  const Folding fold(ranks);
  Schedule schedule(fold.core);
  const auto blocks = [](int first, int end) { return Blocks{first, end}; };
  emit_fold(schedule, fold, rank);
  if (!fold.folded(rank)) {
    emit_halving(schedule, fold, fold.position(rank), blocks);
    emit_doubling(schedule, fold, fold.position(rank), blocks);
  }
  emit_unfold(schedule, fold, rank, 0, fold.core);
  return schedule;
}

// A position's part is its rank's block and that of the rank folded into it.
Schedule recursive_halving_reduce_scatter(int rank, int ranks, int /*root*/) {
  const Folding fold(ranks);
  Schedule schedule(ranks);
  const auto blocks = [&](int first, int end) {
    return Blocks{fold.first_rank(first), fold.first_rank(end)};
  };
  emit_fold(schedule, fold, rank);
  if (!fold.folded(rank)) {
    emit_halving(schedule, fold, fold.position(rank), blocks);
  }
  const int folded = rank & ~1;  // of a pair
  emit_unfold(schedule, fold, rank, folded, folded + 1);
  return schedule;
}

Schedule recursive_doubling_all_gather(int rank, int ranks, int /*root*/) {
  const Folding fold(ranks);
  Schedule schedule(ranks);
  const auto blocks = [&](int first, int end) {
    return Blocks{fold.first_rank(first), fold.first_rank(end)};
  };
  schedule.begin_step();
  if (fold.folded(rank)) {
    schedule.send(rank + 1, rank);
  } else if (fold.in_pair(rank)) {
    schedule.receive(rank - 1, rank - 1);
  }
  if (!fold.folded(rank)) {
    emit_doubling(schedule, fold, fold.position(rank), blocks);
  }
  // All but the folded rank's own, as one message.
  schedule.begin_step();
  for (int chunk = 0; chunk < ranks; ++chunk) {
    if (fold.folded(rank) && chunk != rank) {
      schedule.receive(rank + 1, chunk);
    } else if (fold.in_pair(rank) && !fold.folded(rank) && chunk != rank - 1) {
      schedule.send(rank - 1, chunk);
    }
  }
  return schedule;
}

}  // namespace ringworld
