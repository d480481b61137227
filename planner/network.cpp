#include "planner/network.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "planner/numbers.h"

namespace ringworld {
namespace {

constexpr double micro = 1e-6;
enum Protocol : std::uint8_t { ll, ll128, simple };
constexpr std::array<std::string_view, 3> protocol_names = {"LL", "LL128", "Simple"};

// Microseconds, by protocol: NCCL 2.30, src/graph/tuning.cc.
struct Latencies {
  std::array<double, 3> tree;
  std::array<double, 3> ring;
};
constexpr Latencies base_latency{{6.8, 14, 8.4}, {6.6, 14, 8.4}};
constexpr Latencies nvlink_latency{{.6, 1.25, 4.0}, {.6, 1.9, 3.4}};
constexpr Latencies pci_latency{{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}};
constexpr Latencies net_latency{{5.0, 8.5, 14}, {2.7, 4.0, 14}};
constexpr double nvls_latency = 25;
// The processor's share of a message over the network: of an Intel host; of an AMD one it is twice
// that. Thrice with the Simple protocol.
constexpr double net_overhead = 1;

// GB/s of the LL protocol with 1, 2, and 4 or more nodes, by generation.
constexpr double ll_most[][3] = {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};
// What NVLS reaches of the links, by generation; 0: has none. Of the channels one is left out.
constexpr double nvls_share[] = {0, 0, 0.85, 0.74};
constexpr double nvls_channels = 24;

// By size from 64 bytes, doubling: how well the tree's pipeline is filled.
constexpr double tree_correction[3][24] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}};

std::size_t index_of(NetworkGeneration generation) {
  return static_cast<std::size_t>(generation);
}

double ll_limit(const Network& network, std::int64_t nodes) {
  return giga * ll_most[index_of(network.generation)][nodes == 1 ? 0 : nodes < 4 ? 1 : 2];
}

// What the ring's narrowest part carries: cards of all the group's ranks on a node, or links.
double bus_bandwidth(const Network& network, const RankGroup& group) {
  return group.nodes() == 1 ? network.within
                            : std::min(network.within, network.between * as_double(group.per_node));
}

const Latencies& within_latency(const Network& network) {
  return network.nvlink ? nvlink_latency : pci_latency;
}

void keep_faster(CollectiveTime& best, double seconds, std::string_view algorithm,
                 std::string_view protocol) {
  if (seconds < best.seconds) {
    best = {seconds, algorithm, protocol};
  }
}

constexpr CollectiveTime never{std::numeric_limits<double>::infinity(), "none", ""};

// `rounds`: 2 for all-reduce, which goes round the ring twice, else 1.
void try_rings(CollectiveTime& best, const Network& network, const RankGroup& group, double bytes,
               double rounds) {
  const std::int64_t nodes = group.nodes();
  const double bus = bus_bandwidth(network, group);
  const double steps = rounds * as_double(group.ranks - 1);
  const double across = nodes == 1 ? 0 : rounds * as_double(nodes - 1);
  for (const Protocol protocol : {ll, ll128, simple}) {
    const double intra = std::max(within_latency(network).ring[protocol],
                                  nodes == 1 ? 0 : net_overhead * (protocol == simple ? 3 : 1));
    // The one rank of a node sends as a tree's does.
    const double inter = (group.per_node == 1 ? net_latency.tree : net_latency.ring)[protocol] +
                         network.card_latency / micro * (protocol == simple ? 2 : 1);
    double latency = base_latency.ring[protocol] + (steps - across) * intra + across * inter;
    double bandwidth = bus;
    if (protocol == ll) {
      bandwidth = std::min(ll_limit(network, nodes), 0.5 * bus);
    } else if (protocol == ll128) {
      bandwidth = 0.92 * bus;
    } else if (rounds == 2 && nodes > 1 && bytes / as_double(group.ranks) >= 64) {
      latency *= network.generation == NetworkGeneration::volta ? 1.9 : 1.4;
    }
    keep_faster(best, latency * micro + bytes * steps / (as_double(group.ranks) * bandwidth),
                "ring", protocol_names[protocol]);
  }
}

void try_trees(CollectiveTime& best, const Network& network, const RankGroup& group, double bytes) {
  const std::int64_t nodes = group.nodes();
  const double bus = bus_bandwidth(network, group);
  const double log_size = std::log2(std::max(bytes, 64.0) / 64);
  const auto size = static_cast<std::size_t>(std::clamp(log_size, 0.0, 23.0));
  for (const Protocol protocol : {ll, ll128, simple}) {
    const double intra = std::max(within_latency(network).tree[protocol],
                                  nodes == 1 ? 0 : net_overhead * (protocol == simple ? 3 : 1));
    const double inter =
        net_latency.tree[protocol] + network.card_latency / micro * (protocol == simple ? 2 : 1);
    const double latency =
        base_latency.tree[protocol] +
        2 * (as_double(group.per_node - 1) * intra + std::log2(as_double(nodes)) * inter);
    const double carried = protocol == ll      ? std::min(bus / 3.8, ll_limit(network, nodes))
                           : protocol == ll128 ? bus * (nodes == 1 ? 7.0 / 9 : 120.0 / 128)
                                               : 0.92 * bus;
    const double bandwidth = 0.5 * carried * tree_correction[protocol][size];
    keep_faster(best, latency * micro + bytes / bandwidth, "tree", protocol_names[protocol]);
  }
}

// Over the links of one GPU: all its bytes to the switch, and its share of the sum from there to
// all.
void try_nvls(CollectiveTime& best, const Network& network, const RankGroup& group, double bytes) {
  const double share = nvls_share[index_of(network.generation)];
  if (!network.in_switch || share == 0 || group.nodes() != 1 || group.ranks < 3) {
    return;
  }
  const double links = network.within * share * (nvls_channels - 1) / nvls_channels;
  const double traffic = bytes * (1 + 1 / as_double(group.ranks));
  keep_faster(best, nvls_latency * micro + traffic / links, "nvls", "Simple");
}

CollectiveTime one_round(const Network& network, const RankGroup& group, double bytes) {
  if (group.ranks == 1 || bytes == 0) {
    return {};
  }
  CollectiveTime best = never;
  try_rings(best, network, group, bytes, 1);
  if (group.per_node == 1) {  // PAT: NCCL has it for one rank on each node alone
    const double latency =
        8 + std::log2(as_double(group.nodes())) * 14 / 3.5 + as_double(group.ranks) * 2.8;
    const double bandwidth = 0.75 * bus_bandwidth(network, group);
    keep_faster(
        best,
        latency * micro + bytes * as_double(group.ranks - 1) / (as_double(group.ranks) * bandwidth),
        "pat", "Simple");
  }
  return best;
}

}  // namespace

std::string_view name_of(NetworkGeneration generation) {
  constexpr std::string_view names[] = {"volta", "ampere", "hopper", "blackwell"};
  return names[index_of(generation)];
}

RankGroup group_of_axis(const Network& network, std::int64_t ranks, std::int64_t stride) {
  const std::int64_t on_node = std::max<std::int64_t>(1, network.gpus_per_node / stride);
  return {ranks, std::min(ranks, on_node)};
}

CollectiveTime all_reduce_time(const Network& network, const RankGroup& group, double bytes) {
  if (group.ranks == 1 || bytes == 0) {
    return {};
  }
  CollectiveTime best = never;
  try_rings(best, network, group, bytes, 2);
  try_trees(best, network, group, bytes);
  try_nvls(best, network, group, bytes);
  return best;
}

CollectiveTime reduce_scatter_time(const Network& network, const RankGroup& group, double bytes) {
  return one_round(network, group, bytes);
}

CollectiveTime all_gather_time(const Network& network, const RankGroup& group, double bytes) {
  return one_round(network, group, bytes);
}

CollectiveTime all_to_all_time(const Network& network, const RankGroup& group, double bytes) {
  if (group.ranks == 1 || bytes == 0) {
    return {};
  }
  // What goes to other nodes passes the GPU's card, the rest its links; both at once.
  const double each = bytes / as_double(group.ranks);
  const double near = each * as_double(std::min(group.per_node, group.ranks) - 1);
  const double far = each * as_double(group.ranks - group.per_node);
  const double latency =
      base_latency.ring[simple] + (far > 0 ? net_latency.ring[simple] + network.card_latency / micro
                                           : within_latency(network).ring[simple]);
  return {latency * micro + std::max(near / network.within, far > 0 ? far / network.between : 0),
          "pairwise", ""};
}

CollectiveTime point_to_point_time(const Network& network, bool neighbours, double bytes) {
  if (bytes == 0) {
    return {};
  }
  const double latency = base_latency.ring[simple] +
                         (neighbours ? within_latency(network).ring[simple]
                                     : net_latency.ring[simple] + network.card_latency / micro);
  return {latency * micro + bytes / (neighbours ? network.within : network.between), "message", ""};
}

CollectiveTime flat_all_gather_time(const Network& network, const RankGroup& group, double bytes) {
  if (group.ranks == 1 || bytes == 0) {
    return {};
  }
  if (group.nodes() == 1) {
    return all_gather_time(network, group, bytes);
  }
  const double missing = bytes * as_double(group.ranks - 1) / as_double(group.ranks);
  return {base_latency.ring[simple] * micro + missing / network.between, "flat", ""};
}

double all_reduce_bus_bandwidth(std::int64_t ranks, double bytes, double seconds) {
  return bytes / seconds * 2 * as_double(ranks - 1) / as_double(ranks);
}

}  // namespace ringworld
