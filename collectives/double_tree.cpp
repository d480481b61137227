// Two binary trees at once: each carries half of the buffer, and a rank that is an inner node of
// one is a leaf of the other, so that all ranks' links are in use although only half of the nodes
// of a tree pass anything on. Up the tree is a reduction, down a broadcast; each half is cut into
// pieces that follow one another as in a pipeline.
//
// Source: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan", Parallel Computing 35 (2009). Their schedule colours the edges so that a step has one
// message each way; here a step has all that a rank does for one piece of each tree.
#include <algorithm>
#include <bit>
#include <vector>

#include "collectives/schedule.h"

namespace ringworld {

namespace {

constexpr int pieces = 4;  // of each half

// A tree over positions 0 to P - 1. The top of a run of positions is the one that more powers of
// two divide than any other; below it are the tops of the runs on both sides. Odd positions are
// leaves, and position 0 stands above the top of 1 to P - 1.
struct Node {
  int parent = -1;  // position; -1 for none
  std::vector<int> children = {};
  int height = 0;  // steps from the farthest leaf below
  int depth = 0;   // steps from position 0
};

int top_of(int first, int end) {
  int top = first;
  for (int position = first + 1; position < end; ++position) {
    if (std::countr_zero(static_cast<unsigned>(position)) >
        std::countr_zero(static_cast<unsigned>(top))) {
      top = position;
    }
  }
  return top;
}

// Adds the nodes of the run below `parent`.
void grow(std::vector<Node>& nodes, int parent, int first, int end) {
  if (first >= end) {
    return;
  }
  const int top = top_of(first, end);
  nodes[top].parent = parent;
  nodes[top].depth = nodes[parent].depth + 1;
  nodes[parent].children.push_back(top);
  grow(nodes, top, first, top);
  grow(nodes, top, top + 1, end);
  nodes[parent].height = std::max(nodes[parent].height, nodes[top].height + 1);
}

// One tree's half of the work of one rank, in rounds that all ranks count alike. A node of height h
// sends piece k up in round h + k, and one of depth d gets it from above in round H + k + d - 1.
// The second child's contribution arrives in scratch and is added a round later, since a step
// cannot add two messages to one chunk.
class HalfOfRank {
 public:
  // Position p of this tree is rank rank_at(p). The tree's pieces are chunks from `first_chunk` on.
  HalfOfRank(Schedule& schedule, int ranks, int position, int first_chunk)
      : nodes_(static_cast<std::size_t>(ranks)), first_chunk_(first_chunk) {
    grow(nodes_, 0, 1, ranks);
    node_ = nodes_[static_cast<std::size_t>(position)];
    if (node_.children.size() > 1) {
      for (int piece = 0; piece < pieces; ++piece) {
        waiting_.push_back(schedule.add_scratch(first_chunk + piece));
      }
    }
  }

  int rounds() const { return 2 * nodes_[0].height + pieces - 1; }

  void emit_local(Schedule& schedule, int round) const {
    if (node_.children.size() > 1) {
      if (const int piece = round - 1 - nodes_[node_.children[1]].height; is_piece(piece)) {
        schedule.reduce(first_chunk_ + piece, waiting_[piece]);
      }
    }
  }

  template <typename RankAt>
  void emit_messages(Schedule& schedule, int round, const RankAt& rank_at) const {
    const int height = nodes_[0].height;
    for (std::size_t i = 0; i < node_.children.size(); ++i) {
      const int child = node_.children[i];
      if (const int piece = round - nodes_[child].height; is_piece(piece)) {
        if (i == 0) {
          schedule.receive_reduce(rank_at(child), first_chunk_ + piece);
        } else {
          schedule.receive(rank_at(child), waiting_[piece]);
        }
      }
      if (const int piece = round - height - node_.depth; is_piece(piece)) {
        schedule.send(rank_at(child), first_chunk_ + piece);
      }
    }
    if (node_.parent >= 0) {
      if (const int piece = round - node_.height; is_piece(piece)) {
        schedule.send(rank_at(node_.parent), first_chunk_ + piece);
      }
      if (const int piece = round - height - node_.depth + 1; is_piece(piece)) {
        schedule.receive(rank_at(node_.parent), first_chunk_ + piece);
      }
    }
  }

 private:
  static bool is_piece(int piece) { return piece >= 0 && piece < pieces; }

  std::vector<Node> nodes_;
  Node node_;
  int first_chunk_;
  std::vector<int> waiting_ = {};  // scratch, by piece
};

}  // namespace

Schedule double_tree_all_reduce(int rank, int ranks, int /*root*/) {
  Schedule schedule(2 * pieces);
  // Position r in the first tree; in the second one that is odd where r is even. Only with an odd
  // number of ranks does one of them, rank 0, stay an inner node.
  const auto mirrored = [ranks](int r) {
    return ranks % 2 == 0 ? ranks - 1 - r : (r + ranks - 1) % ranks;
  };
  const auto mirrored_back = [ranks](int position) {
    return ranks % 2 == 0 ? ranks - 1 - position : (position + 1) % ranks;
  };
  const HalfOfRank first(schedule, ranks, rank, 0);
  const HalfOfRank second(schedule, ranks, mirrored(rank), pieces);
  for (int round = 0; round < first.rounds(); ++round) {
    schedule.begin_step();
    first.emit_local(schedule, round);
    second.emit_local(schedule, round);
    first.emit_messages(schedule, round, [](int position) { return position; });
    second.emit_messages(schedule, round, mirrored_back);
  }
  return schedule;
}

}  // namespace ringworld
