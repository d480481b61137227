// How algorithms made for a power of two serve any number of ranks: the ranks beyond it hand their
// data to a neighbour first and get the result from it at last.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19 (2005).
#pragma once

#include <bit>

namespace ringworld {

// Of P = core + extras ranks, the first 2 * extras form pairs: the even one is folded into its odd
// neighbour. The others, and the odd ones of pairs, have positions 0 to core - 1, in order.
struct Folding {
  explicit Folding(int all_ranks)
      : ranks(all_ranks),
        core(static_cast<int>(std::bit_floor(static_cast<unsigned>(all_ranks)))),
        extras(all_ranks - core) {}

  bool in_pair(int rank) const { return rank < 2 * extras; }
  bool folded(int rank) const { return in_pair(rank) && rank % 2 == 0; }
  int position(int rank) const { return in_pair(rank) ? rank / 2 : rank - extras; }
  int rank_at(int position) const {
    return position < extras ? 2 * position + 1 : position + extras;
  }
  // The first rank whose block belongs to `position` or a later one: positions a to b - 1 hold the
  // blocks of ranks first_rank(a) to first_rank(b) - 1.
  int first_rank(int position) const {
    return position < extras ? 2 * position : position + extras;
  }

  int ranks;
  int core;  // the largest power of two that is not above P
  int extras;
};

}  // namespace ringworld
