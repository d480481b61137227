// The models of network, kernels and whole trainings, each by itself; nothing is fitted to these.
#include <algorithm>

#include <fmt/format.h>

#include "planner/network.h"
#include "planner/numbers.h"
#include "planner/step.h"
#include "planner/validate.h"

namespace ringworld {
namespace {

// --- The network ---------------------------------------------------------------------------------

ValidationTable bandwidth_table(const Machines& machines) {
  ValidationTable table{
      .name = "All-reduce bus bandwidth",
      .source =
          "NVIDIA GTC 2024, S62129; Bekman, Machine Learning Engineering (H200, B200 by GPUs)",
      .unit = "GB/s",
      .note =
          "8 GiB among the GPUs of a node, or of four nodes. Nothing is fitted: link rates and "
          "latencies are those of NCCL's tuning model.",
      .rows = {}};
  constexpr double bytes = 8.0 * 1024 * 1024 * 1024;
  const auto add = [&](std::string label, const Network& network, const RankGroup& group,
                       double published) {
    const double seconds = all_reduce_time(network, group, bytes).seconds;
    table.rows.push_back({.label = std::move(label),
                          .published = published,
                          .ours = all_reduce_bus_bandwidth(group.ranks, bytes, seconds) / giga});
  };
  const auto network = [&](const char* machine, bool in_switch) {
    Network result = machines.find(machine).network();
    result.in_switch = in_switch;
    return result;
  };
  add("8 V100", network("V100-32GB", false), {8, 8}, 122);
  add("8 A100", network("A100-80GB", false), {8, 8}, 232);
  add("8 H100, ring", network("H100-80GB", false), {8, 8}, 370);
  add("8 H100, NVLS", network("H100-80GB", true), {8, 8}, 480);
  add("4 DGX A100, 8 x 200 Gb/s", network("A100-80GB", false), {32, 8}, 192);
  add("4 DGX H100, 8 x 400 Gb/s", network("H100-80GB", false), {32, 8}, 380);
  add("8 A100-PCIe", network("A100-PCIe-80GB", false), {8, 8}, 24);
  add("8 H100-PCIe", network("H100-PCIe-80GB", false), {8, 8}, 48);
  add("8 H800, NVLS", network("H800-80GB", true), {8, 8}, 215);
  constexpr double h200[] = {363.3, 414.2, 435.6, 460.0, 473.1};
  constexpr double b200[] = {673.2, 677.8, 778.2, 811.2, 838.0};
  for (std::int64_t ranks = 4; ranks <= 8; ++ranks) {
    const auto i = static_cast<std::size_t>(ranks - 4);
    add(fmt::format("{} H200, NVLS", ranks), network("H200-141GB", true), {ranks, ranks}, h200[i]);
    add(fmt::format("{} B200, NVLS", ranks), network("B200-192GB", true), {ranks, ranks}, b200[i]);
  }
  return table;
}

// --- Kernels -------------------------------------------------------------------------------------

ValidationTable layer_table(const Machines& machines) {
  ValidationTable table{
      .name = "One layer of 22B",
      .source = "Korthikanti et al., 2022 (arXiv 2205.05198), table 4: TP 8, A100-80GB",
      .unit = "ms",
      .note =
          "Nothing is fitted to these rows. One layer by itself runs faster than a whole training "
          "step, which is what the device's constant is fitted to: all rows are as much too slow.",
      .rows = {}};
  struct Row {
    const char* name;
    bool sequence;
    Recompute recompute;
    double forward, backward;
  };
  constexpr Row rows[] = {{"no recomputation", false, Recompute::none, 7.7, 11.9},
                          {"sequence parallel", true, Recompute::none, 7.2, 11.8},
                          {"full", false, Recompute::full, 7.7, 19.5},
                          {"selective", false, Recompute::selective, 7.7, 13.2},
                          {"selective, sequence parallel", true, Recompute::selective, 7.2, 13.1}};
  const Machine& machine = machines.find("A100-80GB");
  const Transformer& model = find_transformer("korthikanti-22b");
  for (const Row& row : rows) {
    Layout layout;
    layout.tensor = 8;
    layout.sequence_parallel = row.sequence;
    layout.recompute = row.recompute;
    layout.micro_batch = 4;
    layout.sequence_length = 2048;
    layout.precision = DType::f16;
    const LayerTime layer =
        unit_times(model, layout, machine, {.flash = false, .dropout = true}).dense;
    const double hidden = std::min(layer.backward.weight_matmul,
                                   layer.backward.tensor * (row.sequence ? 2.0 / 3 : 1));
    table.rows.push_back({.label = fmt::format("{}, forward", row.name),
                          .published = row.forward,
                          .ours = 1e3 * (layer.forward.compute() + layer.forward.tensor)});
    table.rows.push_back(
        {.label = fmt::format("{}, backward", row.name),
         .published = row.backward,
         .ours = 1e3 * (layer.backward.compute() + layer.again.compute() + layer.backward.tensor +
                        layer.again.tensor - (1 - machine.contention.value) * hidden)});
  }
  return table;
}

ValidationTable adam_table(const Machines& machines) {
  ValidationTable table{.name = "CPU-Adam",
                        .source = "Ren et al., 2021 (arXiv 2101.06840), table 4",
                        .unit = "s",
                        .note = "The rate is taken from the first row.",
                        .rows = {}};
  const double rate = machines.find("V100-32GB").adam_rate.value;
  for (const auto& [billions, seconds] : {std::pair{1.0, 0.22}, {4.0, 1.03}, {10.0, 2.57}}) {
    table.rows.push_back({.label = fmt::format("{}B parameters", billions),
                          .published = seconds,
                          .ours = billions * giga / rate});
  }
  return table;
}

// --- GPU-hours -----------------------------------------------------------------------------------

ValidationTable hours_table(const Machines& machines) {
  ValidationTable table{
      .name = "GPU-hours",
      .source = "Llama 3.1 model card; DeepSeek-V3 (arXiv 2412.19437), table 1",
      .unit = "thousands of hours",
      .note =
          "Nothing is fitted to these rows. Llama's hours hold restarts, evaluation and "
          "annealing; ours are of steps alone. DeepSeek's DualPipe is planned as zb-h1.",
      .rows = {}};
  const auto add = [&](std::string label, const char* model, const char* machine,
                       const Layout& layout, const Software& software, double tokens,
                       double published) {
    const Transformer& transformer = find_transformer(model);
    const Machine& device = machines.find(machine);
    const double seconds = plan_step(transformer, layout, device, software).seconds;
    const Throughput reached = throughput(transformer, layout, device, software, seconds);
    table.rows.push_back(
        {.label = std::move(label),
         .published = published,
         .ours = tokens / reached.tokens_per_second * as_double(layout.gpus()) / 3600 / 1000});
  };
  Layout llama;
  llama.data = 128;
  llama.tensor = 8;
  llama.pipeline = 16;
  llama.chunks = 7;
  llama.schedule = "interleaved-1f1b";
  llama.sequence_parallel = true;
  llama.sharding = Sharding::zero1;
  llama.global_batch = 2048;
  llama.sequence_length = 8192;
  add("Llama 3.1 405B, 15.6T tokens", "llama-3-405b", "H100-80GB", llama, {}, 15.6e12, 30840);
  Layout deepseek;
  deepseek.data = 128;
  deepseek.expert = 64;
  deepseek.pipeline = 16;
  deepseek.schedule = "zb-h1";
  deepseek.sharding = Sharding::zero1;
  deepseek.global_batch = 15360;
  deepseek.sequence_length = 4096;
  add("DeepSeek-V3, 14.8T tokens", "deepseek-v3", "H800-80GB", deepseek,
      {.fp8 = true, .overlap_expert = true}, 14.8e12, 2664);
  return table;
}

}  // namespace

std::vector<ValidationTable> validate_models(const Machines& machines) {
  return {bandwidth_table(machines), layer_table(machines), adam_table(machines),
          hours_table(machines)};
}

}  // namespace ringworld
