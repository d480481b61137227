// Bruck's algorithms: ceil(log2 P) steps for any number of ranks, without folding.
//
// Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", IEEE TPDS 8 (1997). Chunks carry their own
// place here, so that nothing needs to be rotated.
#include <algorithm>
#include <bit>
#include <vector>

#include "collectives/schedule.h"

namespace ringworld {

// Before a step, rank r holds the m blocks r to r + m - 1, counted around; rank r + m holds the m
// that follow.
Schedule bruck_all_gather(int rank, int ranks, int /*root*/) {
  Schedule schedule(ranks);
  for (int held = 1; held < ranks; held *= 2) {
    const int more = std::min(held, ranks - held);
    schedule.begin_step();
    for (int i = 0; i < more; ++i) {
      schedule.send((rank - held + ranks) % ranks, (rank + i) % ranks);
      schedule.receive((rank + held) % ranks, (rank + held + i) % ranks);
    }
  }
  return schedule;
}

// The block for rank r + i travels i ranks onwards, in hops of the powers of two that i is made of;
// those of one hop share a message. Wherever it is, it stands at distance i of its traveller's
// list. Blocks of different origin take one another's place on the way: all must be equally long.
//
// at[i] is the chunk that holds what stands at i; the last hop ends in the output, for the origin r
// - i, and the hops before alternate between scratch and output, so that what arrives never
// overwrites what is being sent.
Schedule bruck_all_to_all(int rank, int ranks, int /*root*/) {
  Schedule schedule(2 * ranks);
  const auto hops = [](int i) { return std::popcount(static_cast<unsigned>(i)); };
  std::vector<int> at;
  std::vector<int> scratch;
  for (int i = 0; i < ranks; ++i) {
    at.push_back((rank + i) % ranks);
    scratch.push_back(hops(i) > 1 ? schedule.add_scratch(0) : -1);
  }
  schedule.begin_step();
  schedule.copy(ranks + rank, rank);
  for (int hop = 1; hop < ranks; hop *= 2) {
    for (int i = hop; i < ranks; ++i) {
      if ((i & hop) == 0) {
        continue;
      }
      const int hops_left = hops(i & ~(2 * hop - 1));
      const int target = hops_left % 2 == 0 ? ranks + (rank - i + ranks) % ranks : scratch[i];
      schedule.send((rank + hop) % ranks, at[i]);
      schedule.receive((rank - hop + ranks) % ranks, target);
      at[i] = target;
    }
    schedule.begin_step();
  }
  return schedule;
}

}  // namespace ringworld
