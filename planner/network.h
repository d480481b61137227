// How long a collective takes on GPUs: latency and bandwidth by level of the network, with the
// algorithm and the protocol that NCCL would choose.
//
// The model is the one that NCCL chooses by (src/graph/tuning.cc, 2.30): a collective of S bytes
// takes latency + S / bandwidth, where the latency counts the steps inside a node and between nodes
// and the bandwidth is the "bus" bandwidth (nccl-tests, doc/PERFORMANCE.md) times a factor that
// depends on algorithm and protocol. NVLS (reduction inside NVSwitch) is counted by the traffic of
// one GPU's links: it sends its S bytes and the reduced S/n.
//
// Not modelled: what else uses the network at that time, reduction inside InfiniBand switches, and
// NCCL's limits by channel, which bind nowhere in the machine table.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringworld {

// Whose constants of the tuning model hold.
enum class NetworkGeneration : std::uint8_t { volta, ampere, hopper, blackwell };
inline constexpr NetworkGeneration all_network_generations[] = {
    NetworkGeneration::volta, NetworkGeneration::ampere, NetworkGeneration::hopper,
    NetworkGeneration::blackwell};
std::string_view name_of(NetworkGeneration generation);

struct Network {
  NetworkGeneration generation = NetworkGeneration::ampere;
  int gpus_per_node = 8;
  bool nvlink = true;      // false: PCIe
  bool in_switch = false;  // NVLS: the switch within a node adds
  // Bytes per second that one GPU sends to others of its node, what protocols take subtracted: what
  // a ring within the node reaches as bus bandwidth.
  double within = 0;
  // Of one GPU's share of its node's network cards, likewise.
  double between = 0;
  double card_latency = 0;  // seconds, of the network beyond what the tuning model counts
};

// Ranks that communicate. Where several groups of a node do so at once, each has the cards of its
// own GPUs.
struct RankGroup {
  std::int64_t ranks = 1;
  std::int64_t per_node = 1;  // of them on one node, from 1 to ranks

  std::int64_t nodes() const { return (ranks + per_node - 1) / per_node; }
};

// The group of an axis of the rank grid in which `stride` ranks lie between neighbours: tensor
// parallelism, the innermost axis, has stride 1.
RankGroup group_of_axis(const Network& network, std::int64_t ranks, std::int64_t stride);

struct CollectiveTime {
  double seconds = 0;
  std::string_view algorithm = "none";  // "ring", "tree", "nvls", "pat"
  std::string_view protocol = "";       // "LL", "LL128", "Simple"
};

// `bytes` is the whole vector: what each rank has before an all-reduce, before a reduce-scatter and
// after an all-gather. Nothing takes time among one rank.
CollectiveTime all_reduce_time(const Network& network, const RankGroup& group, double bytes);
CollectiveTime reduce_scatter_time(const Network& network, const RankGroup& group, double bytes);
CollectiveTime all_gather_time(const Network& network, const RankGroup& group, double bytes);
// `bytes`: what one rank has for all others and for itself. All pairs at once.
CollectiveTime all_to_all_time(const Network& network, const RankGroup& group, double bytes);
// One message. `neighbours`: both ranks are on one node.
CollectiveTime point_to_point_time(const Network& network, bool neighbours, double bytes);
// Every rank fetches what it lacks of the vector through its own card, as if no rank of its node
// had it: what an all-gather costs that does not use the links within the node.
CollectiveTime flat_all_gather_time(const Network& network, const RankGroup& group, double bytes);

// Bus bandwidth, bytes per second: bytes / seconds times 2(n-1)/n for all-reduce, (n-1)/n for the
// others; it does not depend on the algorithm, and compares with the links'.
double all_reduce_bus_bandwidth(std::int64_t ranks, double bytes, double seconds);

}  // namespace ringworld
