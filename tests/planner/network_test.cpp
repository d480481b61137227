// NCCL's tuning model: its formulas by hand, the published bus bandwidths, and what must hold for
// any network.
#include "planner/network.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/hardware.h"

namespace ringworld {
namespace {

constexpr double large = 8.0 * 1024 * 1024 * 1024;

double bus(const char* machine, bool in_switch, const RankGroup& group) {
  Network network = Machines().find(machine).network();
  network.in_switch = in_switch;
  return all_reduce_bus_bandwidth(group.ranks, large,
                                  all_reduce_time(network, group, large).seconds) /
         1e9;
}

// GTC 2024 S62129: GB/s. 10 %: the spread of what others measured on the same machines.
TEST(Network, ReachesThePublishedBusBandwidth) {
  const auto near = [](double ours, double published) {
    EXPECT_NEAR(ours / published, 1, 0.1) << published;
  };
  near(bus("V100-32GB", false, {8, 8}), 122);
  near(bus("A100-80GB", false, {8, 8}), 232);
  near(bus("H100-80GB", false, {8, 8}), 370);
  near(bus("H100-80GB", true, {8, 8}), 480);
  near(bus("A100-80GB", false, {32, 8}), 192);
  near(bus("H100-80GB", false, {32, 8}), 380);
  near(bus("A100-PCIe-80GB", false, {8, 8}), 24);
  near(bus("H800-80GB", true, {8, 8}), 215);
}

// One NIC carries a ring of one rank on each node.
TEST(Network, OneRankOnEachNodeHasItsOwnCard) {
  EXPECT_NEAR(bus("A100-80GB", false, {8, 1}), 24, 0.5);
  EXPECT_NEAR(bus("H100-80GB", false, {64, 2}), 96, 2);
}

// Ring, LL: 6.6 + 14 * 0.6 us, and 8 bytes; tree, LL: 6.8 + 2 * 7 * 0.6 us is slower by 0.2.
TEST(Network, SmallMessagesTakeTheLatencyOfTheFormula) {
  const Network a100 = Machines().find("A100-80GB").network();
  const CollectiveTime time = all_reduce_time(a100, {8, 8}, 8);
  EXPECT_EQ(time.algorithm, "ring");
  EXPECT_EQ(time.protocol, "LL");
  EXPECT_NEAR(time.seconds, 15.0e-6, 1e-9);
  // Reduce-scatter goes round once: 6.6 + 7 * 0.6.
  EXPECT_NEAR(reduce_scatter_time(a100, {8, 8}, 8).seconds, 10.8e-6, 1e-9);
}

// A node's only rank sends with the tree's latency: 6.6 + 5.0 and the network's 2.0 us.
TEST(Network, TheOnlyRankOfANodeHasTheTreesLatency) {
  const Network a100 = Machines().find("A100-80GB").network();
  EXPECT_NEAR(reduce_scatter_time(a100, {2, 1}, 8).seconds, 13.6e-6, 1e-9);
}

// log2 of the nodes instead of their number.
TEST(Network, ManyNodesMakeATreeOfSmallMessages) {
  const Network h100 = Machines().find("H100-80GB").network();
  const CollectiveTime small = all_reduce_time(h100, {4096, 8}, 1024);
  EXPECT_EQ(small.algorithm, "tree");
  EXPECT_LT(small.seconds, 300e-6);
  EXPECT_EQ(all_reduce_time(h100, {64, 8}, large).algorithm, "ring");
}

TEST(Network, NothingTakesTimeAmongOneRank) {
  const Network h100 = Machines().find("H100-80GB").network();
  EXPECT_EQ(all_reduce_time(h100, {1, 1}, large).seconds, 0);
  EXPECT_EQ(all_gather_time(h100, {1, 1}, large).seconds, 0);
  EXPECT_EQ(all_to_all_time(h100, {1, 1}, large).seconds, 0);
  EXPECT_EQ(all_reduce_time(h100, {8, 8}, 0).seconds, 0);
}

TEST(Network, MoreBytesTakeLongerAndAnAllReduceIsItsTwoHalves) {
  const Machines machines;
  for (const Machine& machine : machines.all()) {
    Network network = machine.network();
    network.in_switch = false;
    for (const RankGroup group : {RankGroup{8, 8}, {64, 8}, {64, 1}}) {
      double last = 0;
      for (double bytes = 64; bytes < 1e11; bytes *= 8) {
        const double whole = all_reduce_time(network, group, bytes).seconds;
        const double halves = reduce_scatter_time(network, group, bytes).seconds +
                              all_gather_time(network, group, bytes).seconds;
        EXPECT_GT(whole, last) << machine.name << " " << bytes;
        EXPECT_LE(whole, 1.5 * halves) << machine.name << " " << bytes;
        last = whole;
      }
      EXPECT_NEAR(all_reduce_time(network, group, 1e12).seconds /
                      (2 * all_gather_time(network, group, 1e12).seconds),
                  1, 0.02)
          << machine.name;
    }
  }
}

// Of 64 ranks 56 are on other nodes: 7/8 of the bytes go through the card.
TEST(Network, AllToAllIsBoundByTheCards) {
  const Network h100 = Machines().find("H100-80GB").network();
  EXPECT_NEAR(all_to_all_time(h100, {64, 8}, 48e9).seconds, 56.0 / 64, 1e-3);
  EXPECT_NEAR(all_to_all_time(h100, {8, 8}, 370.8e9).seconds, 7.0 / 8, 1e-3);
}

TEST(Network, AxesTakeTheirPlaceInTheNode) {
  const Network h100 = Machines().find("H100-80GB").network();
  EXPECT_EQ(group_of_axis(h100, 4, 1).per_node, 4);
  EXPECT_EQ(group_of_axis(h100, 16, 1).per_node, 8);
  EXPECT_EQ(group_of_axis(h100, 16, 1).nodes(), 2);
  EXPECT_EQ(group_of_axis(h100, 16, 4).per_node, 2);
  EXPECT_EQ(group_of_axis(h100, 16, 8).per_node, 1);
  EXPECT_EQ(group_of_axis(h100, 16, 64).nodes(), 16);
}

}  // namespace
}  // namespace ringworld
