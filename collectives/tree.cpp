// Binomial trees. Ranks are counted from the root: v = rank - root, around. The parent of v is v
// without its lowest bit; the children of v are v + m for the powers of two m below that bit; the
// subtree of v is v to v + (lowest bit) - 1. What the root does takes ceil(log2 P) steps, and
// nobody is later.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19 (2005); broadcast by scatter and all-gather is due to van de Geijn.
#include <algorithm>
#include <bit>

#include "collectives/schedule.h"

namespace ringworld {

namespace {

class Tree {
 public:
  Tree(int rank, int ranks, int root)
      : ranks_(ranks), root_(root), own_((rank - root + ranks) % ranks) {}

  int own() const { return own_; }
  bool is_root() const { return own_ == 0; }
  int rank_of(int v) const { return (v % ranks_ + root_) % ranks_; }
  int parent() const { return rank_of(own_ & (own_ - 1)); }
  // The lowest bit of v; for the root a power of two that is P or more.
  int reach() const {
    return is_root() ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks_)))
                     : own_ & -own_;
  }
  int subtree_end(int v, int reach) const { return std::min(v + reach, ranks_); }

  // action(v, reach) for every child, the smallest subtree first or last.
  template <typename Action>
  void children_upwards(const Action& action) const {
    for (int m = 1; m < reach() && own_ + m < ranks_; m *= 2) {
      action(own_ + m, m);
    }
  }
  template <typename Action>
  void children_downwards(const Action& action) const {
    for (int m = reach() / 2; m > 0; m /= 2) {
      if (own_ + m < ranks_) {
        action(own_ + m, m);
      }
    }
  }

 private:
  int ranks_;
  int root_;
  int own_;
};

void emit_reduce(Schedule& schedule, const Tree& tree) {
  tree.children_upwards([&](int child, int /*reach*/) {
    schedule.begin_step();
    schedule.receive_reduce(tree.rank_of(child), 0);
  });
  if (!tree.is_root()) {
    schedule.begin_step();
    schedule.send(tree.parent(), 0);
  }
}

void emit_broadcast(Schedule& schedule, const Tree& tree) {
  if (!tree.is_root()) {
    schedule.begin_step();
    schedule.receive(tree.parent(), 0);
  }
  tree.children_downwards([&](int child, int /*reach*/) {
    schedule.begin_step();
    schedule.send(tree.rank_of(child), 0);
  });
}

// The block of v is chunk block(v). A rank gets the blocks of its subtree and passes on those of
// its children's.
template <typename Block>
void emit_scatter(Schedule& schedule, const Tree& tree, const Block& block) {
  if (!tree.is_root()) {
    schedule.begin_step();
    for (int v = tree.own(); v < tree.subtree_end(tree.own(), tree.reach()); ++v) {
      schedule.receive(tree.parent(), block(v));
    }
  }
  tree.children_downwards([&](int child, int reach) {
    schedule.begin_step();
    for (int v = child; v < tree.subtree_end(child, reach); ++v) {
      schedule.send(tree.rank_of(child), block(v));
    }
  });
}

}  // namespace

Schedule tree_reduce(int rank, int ranks, int root) {
  Schedule schedule(1);
  emit_reduce(schedule, Tree(rank, ranks, root));
  return schedule;
}

Schedule tree_broadcast(int rank, int ranks, int root) {
  Schedule schedule(1);
  emit_broadcast(schedule, Tree(rank, ranks, root));
  return schedule;
}

Schedule tree_all_reduce(int rank, int ranks, int /*root*/) {
  Schedule schedule(1);
  const Tree tree(rank, ranks, 0);
  emit_reduce(schedule, tree);
  emit_broadcast(schedule, tree);
  return schedule;
}

Schedule tree_scatter(int rank, int ranks, int root) {
  Schedule schedule(ranks);
  const Tree tree(rank, ranks, root);
  emit_scatter(schedule, tree, [&](int v) { return tree.rank_of(v); });
  return schedule;
}

Schedule tree_gather(int rank, int ranks, int root) {
  Schedule schedule(ranks);
  const Tree tree(rank, ranks, root);
  tree.children_upwards([&](int child, int reach) {
    schedule.begin_step();
    for (int v = child; v < tree.subtree_end(child, reach); ++v) {
      schedule.receive(tree.rank_of(child), tree.rank_of(v));
    }
  });
  if (!tree.is_root()) {
    schedule.begin_step();
    for (int v = tree.own(); v < tree.subtree_end(tree.own(), tree.reach()); ++v) {
      schedule.send(tree.parent(), tree.rank_of(v));
    }
  }
  return schedule;
}

// One chunk for each v; the all-gather is the ring's.
Schedule scatter_all_gather_broadcast(int rank, int ranks, int root) {
  Schedule schedule(ranks);
  const Tree tree(rank, ranks, root);
  emit_scatter(schedule, tree, [](int v) { return v; });
  for (int s = 0; s < ranks - 1; ++s) {
    schedule.begin_step();
    schedule.send(tree.rank_of(tree.own() + 1), (tree.own() - s + ranks) % ranks);
    schedule.receive(tree.rank_of(tree.own() - 1 + ranks),
                     (tree.own() - 1 - s + 2 * ranks) % ranks);
  }
  return schedule;
}

}  // namespace ringworld
