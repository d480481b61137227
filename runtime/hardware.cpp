#include "runtime/hardware.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

constexpr double giga = 1e9;
constexpr double tera = 1e12;

constexpr Bytes gigabytes(std::int64_t n) {
  return Bytes(n * 1'000'000'000);
}

// 16 lanes with 128 bits of every 130 for data: PCI Express Base Specification 3.0, 4.0 and 5.0.
constexpr double pcie3 = 16 * 8e9 / 8 * 128 / 130;
constexpr double pcie4 = 16 * 16e9 / 8 * 128 / 130;
constexpr double pcie5 = 16 * 32e9 / 8 * 128 / 130;

constexpr DenseRates v100{.f32 = 15.7 * tera, .f16 = 125 * tera};
constexpr DenseRates a100{
    .f32 = 19.5 * tera, .tf32 = 156 * tera, .bf16 = 312 * tera, .f16 = 312 * tera};
// Printed with sparsity: 989, 1979, 1979 and 3958.
constexpr DenseRates h100{.f32 = 67 * tera,
                          .tf32 = 494.5 * tera,
                          .bf16 = 989.5 * tera,
                          .f16 = 989.5 * tera,
                          .fp8 = 1979 * tera};

constexpr std::string_view v100_source =
    "NVIDIA V100 Tensor Core GPU datasheet, January 2020, specifications of V100 SXM2";
constexpr std::string_view a100_source =
    "NVIDIA A100 Tensor Core GPU datasheet, June 2021, specifications of A100 SXM";

// NVLink's bandwidth is printed for both directions together: 300, 600, 900 and 1800 GB/s.
constexpr Accelerator table[] = {
    {.name = "T4-16GB",
     .memory = gigabytes(16),
     .memory_bandwidth = 320 * giga,
     .rates = {.f32 = 8.1 * tera, .f16 = 65 * tera},
     .link_bandwidth = pcie3,
     .power = 70,
     .source = "NVIDIA T4 Tensor Core GPU datasheet, March 2019, specifications"},
    {.name = "V100-16GB",
     .memory = gigabytes(16),
     .memory_bandwidth = 900 * giga,
     .rates = v100,
     .link_bandwidth = 150 * giga,
     .power = 300,
     .source = v100_source},
    {.name = "V100-32GB",
     .memory = gigabytes(32),
     .memory_bandwidth = 900 * giga,
     .rates = v100,
     .link_bandwidth = 150 * giga,
     .power = 300,
     .source = v100_source},
    {.name = "A100-40GB",
     .memory = gigabytes(40),
     .memory_bandwidth = 1555 * giga,
     .rates = a100,
     .link_bandwidth = 300 * giga,
     .power = 400,
     .source = a100_source},
    {.name = "A100-80GB",
     .memory = gigabytes(80),
     .memory_bandwidth = 2039 * giga,
     .rates = a100,
     .link_bandwidth = 300 * giga,
     .power = 400,
     .source = a100_source},
    {.name = "A100-PCIe-80GB",
     .memory = gigabytes(80),
     .memory_bandwidth = 1935 * giga,
     .rates = a100,
     .link_bandwidth = pcie4,  // without the bridge that joins two cards
     .power = 300,
     .source = "NVIDIA A100 Tensor Core GPU datasheet, June 2021, specifications of A100 PCIe"},
    {.name = "H100-80GB",
     .memory = gigabytes(80),
     .memory_bandwidth = 3350 * giga,
     .rates = h100,
     .link_bandwidth = 450 * giga,
     .power = 700,
     .source = "NVIDIA H100 Tensor Core GPU datasheet, 2023, specifications of H100 SXM"},
    {.name = "H100-96GB",
     .memory = gigabytes(96),
     .memory_bandwidth = 2400 * giga,
     .rates = h100,
     .link_bandwidth = 450 * giga,
     .power = 500,
     .source = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: H100 with HBM2e, limited "
               "to 500 W; rates of H100 SXM"},
    {.name = "H100-PCIe-80GB",
     .memory = gigabytes(80),
     .memory_bandwidth = 2000 * giga,
     .rates = {.f32 = 51 * tera,
               .tf32 = 378 * tera,
               .bf16 = 756 * tera,
               .f16 = 756 * tera,
               .fp8 = 1513 * tera},
     .link_bandwidth = pcie5,  // without the bridge that joins two cards
     .power = 350,
     .source = "NVIDIA H100 Tensor Core GPU datasheet, 2022, specifications of H100 PCIe"},
    {.name = "H800-80GB",
     .memory = gigabytes(80),
     .memory_bandwidth = 3350 * giga,
     .rates = h100,
     .link_bandwidth = 200 * giga,
     .power = 700,
     .source = "Insights into DeepSeek-V3, ISCA 2025, section 4.1: NVLink of 400 GB/s in both "
               "directions; all else as H100 SXM"},
    {.name = "H200-141GB",
     .memory = gigabytes(141),
     .memory_bandwidth = 4800 * giga,
     .rates = h100,
     .link_bandwidth = 450 * giga,
     .power = 700,
     .source = "NVIDIA H200 Tensor Core GPU datasheet, 2024, specifications of H200 SXM"},
    {.name = "B200-192GB",
     .memory = gigabytes(192),
     .memory_bandwidth = 8000 * giga,
     .rates = {.f32 = 80 * tera,
               .tf32 = 1125 * tera,
               .bf16 = 2250 * tera,
               .f16 = 2250 * tera,
               .fp8 = 4500 * tera},
     .link_bandwidth = 900 * giga,
     .power = 1000,
     .source = "NVIDIA Blackwell Architecture Technical Brief, 2024, HGX B200, one of eight"},
    {.name = "GB200-186GB",
     .memory = gigabytes(186),
     .memory_bandwidth = 8000 * giga,
     .rates = {.f32 = 80 * tera,
               .tf32 = 1250 * tera,
               .bf16 = 2500 * tera,
               .f16 = 2500 * tera,
               .fp8 = 5000 * tera},
     .link_bandwidth = 900 * giga,
     .power = 1200,
     .source = "NVIDIA GB200 NVL72 datasheet, 2024, specifications of one of two GPUs"},
    {.name = "L4-24GB",
     .memory = gigabytes(24),
     .memory_bandwidth = 300 * giga,
     .rates = {.f32 = 30.3 * tera,
               .tf32 = 60 * tera,
               .bf16 = 121 * tera,
               .f16 = 121 * tera,
               .fp8 = 242.5 * tera},
     .link_bandwidth = pcie4,
     .power = 72,
     .source = "NVIDIA L4 Tensor Core GPU datasheet, 2023, specifications"},
    {.name = "L40S-48GB",
     .memory = gigabytes(48),
     .memory_bandwidth = 864 * giga,
     .rates = {.f32 = 91.6 * tera,
               .tf32 = 183 * tera,
               .bf16 = 362.05 * tera,
               .f16 = 362.05 * tera,
               .fp8 = 733 * tera},
     .link_bandwidth = pcie4,
     .power = 350,
     .source = "NVIDIA L40S datasheet, 2023, specifications"},
    {.name = "RTX-3090-24GB",
     .memory = gigabytes(24),
     .memory_bandwidth = 936 * giga,
     .rates = {.f32 = 35.6 * tera, .tf32 = 35.6 * tera, .bf16 = 71 * tera, .f16 = 71 * tera},
     .link_bandwidth = pcie4,
     .power = 350,
     .source = "NVIDIA Ampere GA102 GPU Architecture white paper, 2021, appendix: RTX 3090"},
    {.name = "RTX-4090-24GB",
     .memory = gigabytes(24),
     .memory_bandwidth = 1008 * giga,
     .rates = {.f32 = 82.6 * tera,
               .tf32 = 82.6 * tera,
               .bf16 = 165.2 * tera,
               .f16 = 165.2 * tera,
               .fp8 = 330.3 * tera},
     .link_bandwidth = pcie4,
     .power = 450,
     .source = "NVIDIA Ada GPU Architecture white paper, 2022, appendix: RTX 4090"},
    {.name = "MI250X-128GB",
     .memory = gigabytes(128),
     .memory_bandwidth = 3276.8 * giga,
     .rates = {.f32 = 47.9 * tera, .bf16 = 383 * tera, .f16 = 383 * tera},
     .link_bandwidth = {},  // 8 links of 50 GB/s; how many lead to others differs between nodes
     .power = 560,
     .source = "AMD Instinct MI250X accelerator data sheet, 2021; both dies together"},
    {.name = "MI300X-192GB",
     .memory = gigabytes(192),
     .memory_bandwidth = 5300 * giga,
     .rates = {.f32 = 163.4 * tera,
               .tf32 = 653.7 * tera,
               .bf16 = 1307.4 * tera,
               .f16 = 1307.4 * tera,
               .fp8 = 2614.9 * tera},
     .link_bandwidth = 448 * giga,  // 7 links of 64 GB/s, one to each of the others
     .power = 750,
     .source = "AMD Instinct MI300X accelerator data sheet, 2023"},
    {.name = "TPUv4-32GB",
     .memory = Bytes(std::int64_t{32} << 30),
     .memory_bandwidth = 1200 * giga,
     .rates = {.bf16 = 275 * tera},
     .link_bandwidth = 6 * 45 * giga,  // 6 links in a torus of three dimensions
     .power = 192,
     .source = "Jouppi et al., TPU v4, ISCA 2023, table 4 (32 GiB); links: Austin et al., How to "
               "Scale Your Model, 2025, TPU specs"},
    {.name = "TPUv5e-16GB",
     .memory = gigabytes(16),
     .memory_bandwidth = 819 * giga,
     .rates = {.bf16 = 197 * tera},
     .link_bandwidth = 4 * 45 * giga,  // 4 links in a torus of two dimensions
     .power = {},
     .source = "Google Cloud TPU v5e documentation, 2023; links: Austin et al., How to Scale Your "
               "Model, 2025, TPU specs"},
};

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

}  // namespace

std::span<const Accelerator> accelerators() {
  return table;
}

const Accelerator& find_accelerator(std::string_view name) {
  const std::string wanted = upper(name);
  std::vector<std::string> names;
  for (const Accelerator& accelerator : table) {
    names.emplace_back(accelerator.name);
    if (upper(accelerator.name) == wanted) {
      return accelerator;
    }
  }
  throw UsageError(fmt::format("'{}': unknown accelerator; did you mean {}? There are: {}", name,
                               holding_or_nearest(name, names), fmt::join(names, ", ")));
}

}  // namespace ringworld
