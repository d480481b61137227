// The built-in machines. Accelerators come from runtime/hardware.h; here is what stands around
// them.
#include <array>

#include <fmt/format.h>

#include "planner/hardware.h"
#include "planner/numbers.h"
#include "runtime/error.h"
#include "runtime/hardware.h"

namespace ringworld {
namespace {

constexpr double tera = 1e12;

// NCCL's bandwidth of a link (src/graph/topo.h, 2.30): NVLink 20 GB/s on V100 and A100, 20.6 on
// H100 and 40.1 on B200; PCIe 12 for 3.0, and twice that with every generation; network cards 12
// for each 100 Gb/s.
constexpr const char* topology = "NCCL 2.30, src/graph/topo.h: link rates of its tuning model";
constexpr const char* assumed = "assumed";

// What is around an accelerator.
struct Node {
  std::string_view name;
  std::string_view source;
  double gpus = 8;
  double links = 0;  // bytes per second
  double cards = 0;  // bytes per second and GPU
  double host_memory = 0;
  double host_link = 0;
  double drives = 0;  // bytes
  double drive_count = 0;
  double power = 0;
};

constexpr Node dgx1{"DGX-1",
                    "NVIDIA DGX-1 with V100 datasheet, 2019",
                    8,
                    6 * 20 * giga,
                    4 * 12 * giga / 8,
                    512 * giga,
                    12 * giga,
                    7.68 * tera,
                    4,
                    3500};
constexpr Node dgx_a100_40{"DGX A100", "NVIDIA DGX A100 datasheet, 2020, 320 GB",
                           8,          12 * 20 * giga,
                           24 * giga,  1 * tera,
                           24 * giga,  15.36 * tera,
                           4,          6500};
constexpr Node dgx_a100{"DGX A100", "NVIDIA DGX A100 datasheet, 2021, 640 GB",
                        8,          12 * 20 * giga,
                        24 * giga,  2 * tera,
                        24 * giga,  30.72 * tera,
                        8,          6500};
constexpr Node dgx_h100{"DGX H100", "NVIDIA DGX H100 datasheet, 2023",
                        8,          18 * 20.6 * giga,
                        48 * giga,  2 * tera,
                        48 * giga,  30.72 * tera,
                        8,          10200};
constexpr Node h800_node{
    "HGX H800", "DeepSeek-V3 (arXiv 2412.19437), section 3.1; host as DGX H100",
    8,          8 * 20.6 * giga,
    48 * giga,  2 * tera,
    48 * giga,  30.72 * tera,
    8,          10200};
constexpr Node dgx_b200{"DGX B200", "NVIDIA DGX B200 datasheet, 2024",
                        8,          18 * 40.1 * giga,
                        48 * giga,  2 * tera,
                        48 * giga,  30.72 * tera,
                        8,          14300};
constexpr Node nvl72{"GB200 NVL72",
                     "NVIDIA GB200 NVL72 datasheet, 2024; drives assumed",
                     72,
                     18 * 40.1 * giga,
                     48 * giga,
                     17.3 * tera,
                     48 * giga,
                     30.72 * tera,
                     8,
                     120000};
constexpr Node pcie4_node{"8 cards on PCIe 4.0",
                          "assumed: 8 cards, two network cards of 200 Gb/s, 1 TB, 4 drives",
                          8,
                          24 * giga,
                          2 * 24 * giga / 8,
                          1 * tera,
                          24 * giga,
                          15.36 * tera,
                          4,
                          0};
constexpr Node pcie5_node{"8 cards on PCIe 5.0",
                          "assumed: 8 cards, two network cards of 400 Gb/s, 2 TB, 4 drives",
                          8,
                          48 * giga,
                          2 * 48 * giga / 8,
                          2 * tera,
                          48 * giga,
                          15.36 * tera,
                          4,
                          0};
constexpr Node pcie3_node{"8 cards on PCIe 3.0",
                          "assumed: 8 cards, one network card of 100 Gb/s, 384 GB, 2 drives",
                          8,
                          12 * giga,
                          12 * giga / 8,
                          384 * giga,
                          12 * giga,
                          1.8 * tera,
                          2,
                          0};
constexpr Node mi300x_node{"8 on Infinity Fabric",
                           "all-reduce among 8 measured as 312.9 GB/s (Bekman, Machine Learning "
                           "Engineering, network benchmarks); 400 Gb/s each and host assumed",
                           8,
                           312.9 * giga,
                           48 * giga,
                           2 * tera,
                           48 * giga,
                           30.72 * tera,
                           8,
                           0};
constexpr Node mi250x_node{"4 on Infinity Fabric",
                           "links as far below 350 GB/s as MI300X measures; 200 Gb/s each and host "
                           "assumed",
                           4,
                           0.7 * 350 * giga,
                           24 * giga,
                           512 * giga,
                           24 * giga,
                           3.84 * tera,
                           2,
                           0};
constexpr Node tpu4_pod{"TPU v4 pod",
                        "Jouppi et al., ISCA 2023: 4096 chips on one torus; 0.8 of its links, host "
                        "and network beyond assumed",
                        4096,
                        0.8 * 270 * giga,
                        6 * giga,
                        512 * giga * 1024,
                        12 * giga,
                        1 * tera,
                        1,
                        0};
constexpr Node tpu5e_pod{"TPU v5e pod",
                         "Google Cloud TPU v5e documentation: 256 chips on one torus; 0.8 of its "
                         "links, host and network beyond assumed",
                         256,
                         0.8 * 180 * giga,
                         3 * giga,
                         512 * giga * 32,
                         12 * giga,
                         1 * tera,
                         1,
                         0};

// How much of the datasheet a device gives. Matmul shares: Bekman, Machine Learning Engineering,
// maximum achievable matmul FLOPS, bf16.
struct Shares {
  double processors;
  double matmul;
  double flash;
  double sustained;
  std::string_view matmul_source;
  std::string_view flash_source;
  std::string_view sustained_source;
};

constexpr std::string_view mamf =
    "Bekman, Machine Learning Engineering, maximum achievable matmul FLOPS, bf16";
constexpr std::string_view as_a100 = "assumed as A100";
constexpr std::string_view as_h100 = "assumed as H100";
constexpr std::string_view flash2 =
    "Dao, FlashAttention-2 (arXiv 2307.08691), section 4.1: 50 to 73 % of A100 forward, less "
    "backward";
constexpr std::string_view flash_hopper =
    "Shah et al., FlashAttention-3 (arXiv 2407.08608), abstract and section 4.1: up to 75 % "
    "forward, less backward";
constexpr std::string_view fitted_a100 =
    "fitted: the planner's validation on A100 (plan validate shows it with each row left out)";
constexpr std::string_view fitted_h100 =
    "fitted: the planner's validation on H100 (plan validate shows it with each row left out)";

constexpr std::string_view fitted_500w =
    "fitted: the planner's validation on torchtitan's runs (plan validate shows it)";

constexpr double a100_sustained = 0.795;
constexpr double h100_sustained = 0.744;
constexpr double h100_500w_sustained = 0.63;

constexpr Shares v100{80, 0.80, 0.35, a100_sustained, as_a100, as_a100, as_a100};
constexpr Shares a100{108, 0.869, 0.55, a100_sustained, mamf, flash2, fitted_a100};
constexpr Shares a100_pcie{108, 0.811, 0.55, a100_sustained, mamf, flash2, as_a100};
constexpr Shares h100{132, 0.803, 0.60, h100_sustained, mamf, flash_hopper, fitted_h100};
constexpr Shares h100_500w{132, 0.803, 0.60, h100_500w_sustained, mamf, flash_hopper, fitted_500w};
constexpr Shares h100_pcie{114, 0.803, 0.50, h100_sustained, as_h100, as_h100, as_h100};
constexpr Shares b200{148, 0.776, 0.50, h100_sustained, mamf, as_h100, as_h100};
constexpr Shares gb200{152, 0.729, 0.50, h100_sustained, mamf, as_h100, as_h100};
constexpr Shares ada{142, 0.80, 0.50, a100_sustained, as_a100, as_a100, as_a100};
constexpr Shares l4{58, 0.80, 0.50, a100_sustained, as_a100, as_a100, as_a100};
constexpr Shares t4{40, 0.80, 0.35, a100_sustained, as_a100, as_a100, as_a100};
constexpr Shares ga102{82, 0.80, 0.50, a100_sustained, as_a100, as_a100, as_a100};
constexpr Shares ad102{128, 0.80, 0.50, a100_sustained, as_a100, as_a100, as_a100};
constexpr Shares mi250x{220, 0.514, 0.30, a100_sustained, "assumed as MI300X", as_a100, as_a100};
constexpr Shares mi300x{304, 0.514, 0.35, a100_sustained, mamf, as_h100, as_a100};
// A matrix unit takes tiles of 128 by 128; there are few, and large.
constexpr Shares tpu{8, 0.85, 0.50, a100_sustained, as_a100, as_a100, as_a100};

struct Price {
  double dollars = 0;
  std::string_view source = "unknown";
};
constexpr std::string_view aws =
    "AWS EC2 list, us-east-1, on demand, November 2026, an eighth of the instance";
constexpr std::string_view hyperstack = "Hyperstack public rate card, on demand, August 2026";
constexpr std::string_view openrelay = "OpenRelay public rate card, September 2026";

struct Entry {
  std::string_view accelerator;
  const Node* node;
  const Shares* shares;
  NetworkGeneration generation;
  bool nvlink;
  bool in_switch;
  Price price = {};
};

using enum NetworkGeneration;
constexpr Entry table[] = {
    {"T4-16GB", &pcie3_node, &t4, volta, false, false},
    {"V100-16GB", &dgx1, &v100, volta, true, false},
    {"V100-32GB", &dgx1, &v100, volta, true, false},
    {"A100-40GB", &dgx_a100_40, &a100, ampere, true, false, {2.74, aws}},
    {"A100-80GB", &dgx_a100, &a100, ampere, true, false, {3.43, aws}},
    {"A100-PCIe-80GB", &pcie4_node, &a100_pcie, ampere, false, false},
    {"H100-80GB", &dgx_h100, &h100, hopper, true, true, {3.20, hyperstack}},
    {"H100-96GB", &dgx_h100, &h100_500w, hopper, true, true},
    {"H100-PCIe-80GB", &pcie5_node, &h100_pcie, hopper, false, false},
    {"H800-80GB",
     &h800_node,
     &h100,
     hopper,
     true,
     true,
     {2.00, "DeepSeek-V3 (arXiv 2412.19437), table 1: the rent it assumes"}},
    {"H200-141GB", &dgx_h100, &h100, hopper, true, true, {3.99, hyperstack}},
    {"B200-192GB", &dgx_b200, &b200, blackwell, true, true, {6.00, hyperstack}},
    {"GB200-186GB", &nvl72, &gb200, blackwell, true, true},
    {"L4-24GB", &pcie4_node, &l4, ampere, false, false},
    {"L40S-48GB", &pcie4_node, &ada, ampere, false, false},
    {"RTX-3090-24GB", &pcie4_node, &ga102, ampere, false, false, {0.18, openrelay}},
    {"RTX-4090-24GB", &pcie4_node, &ad102, ampere, false, false, {0.29, openrelay}},
    {"MI250X-128GB", &mi250x_node, &mi250x, ampere, true, false},
    {"MI300X-192GB", &mi300x_node, &mi300x, hopper, true, false},
    {"TPUv4-32GB", &tpu4_pod, &tpu, ampere, true, false},
    {"TPUv5e-16GB", &tpu5e_pod, &tpu, ampere, true, false},
};

std::string text(std::string_view view) {
  return std::string(view);
}

Machine machine_of(const Entry& entry) {
  const Accelerator& a = find_accelerator(entry.accelerator);
  const Node& node = *entry.node;
  const Shares& shares = *entry.shares;
  const auto of_accelerator = [&](std::optional<double> value) {
    return value ? Constant{*value, text(a.source)} : Constant{0, "none"};
  };
  const auto of_node = [&](double value) { return Constant{value, text(node.source)}; };
  const auto of_links = [&](double value) {
    return Constant{value, node.source.starts_with(assumed)
                               ? text(node.source)
                               : fmt::format("{} ({})", topology, node.name)};
  };
  const bool measured = entry.node == &mi300x_node || entry.node == &mi250x_node ||
                        entry.node == &tpu4_pod || entry.node == &tpu5e_pod;
  Machine m;
  m.name = text(a.name);
  m.node = text(node.name);
  m.generation = entry.generation;
  m.nvlink = entry.nvlink;
  m.in_switch = entry.in_switch;
  m.network_source = "NCCL 2.30, src/graph/tuning.cc, by the device's generation";
  m.memory = of_accelerator(static_cast<double>(a.memory.value));
  m.memory_bandwidth = of_accelerator(a.memory_bandwidth);
  m.f32 = of_accelerator(a.rates.f32);
  m.tf32 = of_accelerator(a.rates.tf32);
  m.bf16 = of_accelerator(a.rates.bf16);
  m.f16 = of_accelerator(a.rates.f16);
  m.fp8 = of_accelerator(a.rates.fp8);
  m.power = of_accelerator(a.power);
  m.gpus_per_node = of_node(node.gpus);
  m.within = measured ? of_node(node.links) : of_links(node.links);
  m.between = measured ? of_node(node.cards) : of_links(node.cards);
  m.card_latency = {2e-6, "assumed: two switches between any two nodes"};
  m.host_memory = of_node(node.host_memory);
  m.host_link = of_links(node.host_link);
  m.adam_rate = {1e9 / 0.22,
                 "Ren et al., ZeRO-Offload (arXiv 2101.06840), table 4: 1B parameters in 0.22 s"};
  m.nvme = of_node(node.drives);
  m.nvme_read = {node.drive_count * 6.5 * giga, "assumed: drives of 6.5 GB/s"};
  m.nvme_write = {node.drive_count * 3 * giga, "assumed: drives of 3 GB/s"};
  m.node_power = node.power > 0 ? of_node(node.power) : Constant{0, "unknown"};
  m.price = {entry.price.dollars, text(entry.price.source)};
  m.processors = {shares.processors, text(a.source)};
  m.matmul_share = {shares.matmul, text(shares.matmul_source)};
  m.fp8_share = a.rates.fp8
                    ? Constant{entry.generation == NetworkGeneration::blackwell ? 0.763 : 0.709,
                               "Bekman, Machine Learning Engineering, maximum achievable "
                               "matmul FLOPS, fp8, of H100 and B200"}
                    : Constant{0, "none"};
  m.sustained = {shares.sustained, text(shares.sustained_source)};
  m.flash_share = {shares.flash, text(shares.flash_source)};
  m.memory_share = {0.8,
                    "assumed: between 0.9 and 0.75, Calculon's for tensors above 100 MB and "
                    "10 MB (Isaev et al., SC 2023)"};
  m.contention = {0.15,
                  "DeepSeek-V3 (arXiv 2412.19437), section 3.2.2: 20 of 132 multiprocessors "
                  "communicate; Calculon has 0.15 for NVLink, too"};
  m.kernel_seconds = {3e-6,
                      "assumed: launches run ahead; what remains is a kernel's start and end"};
  return m;
}

}  // namespace

Machines::Machines() {
  for (const Entry& entry : table) {
    rows_.push_back(machine_of(entry));
  }
}

}  // namespace ringworld
