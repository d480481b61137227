// Of the lesson: the exercise on ZeRO-Offload. By the lesson's bytes, and by our own runtime's.
#include <algorithm>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/dry_run.h"
#include "cli/lesson.h"
#include "planner/conventions.h"
#include "runtime/hardware.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr double giga = 1e9;
constexpr std::int64_t parameters = 70'000'000'000;
constexpr double host_memory = 512;  // GB of a node, as the exercise says
constexpr double nvme = 2000;        // GB of a node

// How fast the host side is; nothing is hidden behind compute.
constexpr double host_link = 16 * 16e9 / 8 * 128 / 130;  // bytes/s: PCI Express 4.0, 16 lanes
constexpr double adam_rate = 1e9 / 0.22;  // parameters/s of a node: ZeRO-Offload (2021), table 4
constexpr double drive_read = 6.5e9;      // bytes/s: an assumption
constexpr double drive_write = 3e9;       // bytes/s: an assumption
constexpr double utilization = 0.4;       // of the GPU's dense rate: an assumption

struct States {  // GB; activations are not counted
  double device = 0;
  double host = 0;  // of all GPUs, as the rest
  double file = 0;
};

States states_on(std::int64_t gpus, bool offloads) {
  States states;
  const ConventionReport report =
      lesson_memory({.parameters = parameters, .sharding = Sharding::zero3, .gpus = gpus});
  for (const ConventionRow& row : report.rows) {
    if (row.name == "optimizer" && offloads) {
      const double all = row.device * static_cast<double>(gpus) / giga;
      states.host = std::min(all, host_memory);
      states.file = all - states.host;
    } else if (row.name != "activations") {
      states.device += row.device / giga;
    }
  }
  return states;
}

// Of one step: gradients down, Adam on the CPUs, weights up; and what is on the drive in and out.
double seconds_on_host(std::int64_t gpus, const States& states) {
  const double bytes_each_way = 2.0 * parameters / static_cast<double>(gpus);
  return 2 * bytes_each_way / host_link + parameters / adam_rate +
         states.file * giga * (1 / drive_read + 1 / drive_write);
}

TrainOptions training() {
  TrainOptions options;
  options.model.name = "llama-2-70b";
  options.precision = DType::bf16;
  options.data.sequence_length = 2048;
  options.global_batch = 4;
  options.micro_batch = 1;
  options.strategy.name = "fsdp";
  options.recomputation.checkpoint = 1;
  options.offload.what = Offload::master;
  return options;
}

}  // namespace

LessonPart lesson_offload(LessonRanks& /*ranks*/) {
  const Accelerator& gpu = find_accelerator("A100-80GB");
  const double room = static_cast<double>(gpu.memory.value) / giga;
  Table table({{"GPUs", Align::right},
               {"optimizer"},
               {"per GPU GB", Align::right},
               {fmt::format("fits {:g} GB", room)},
               {"host GB", Align::right},
               {"NVMe GB", Align::right}});
  Json rows = Json::array();
  for (const bool offloads : {false, true}) {
    for (const std::int64_t gpus : {2, 4, 8, 16}) {
      const States states = states_on(gpus, offloads);
      const bool fits = states.device <= room && states.file <= nvme;
      table.add_row({fmt::format("{}", gpus), offloads ? "offloaded" : "on the GPUs",
                     fmt::format("{:.1f}", states.device), fits ? "yes" : "no",
                     fmt::format("{:.0f}", states.host), fmt::format("{:.0f}", states.file)});
      rows.push_back({{"gpus", gpus},
                      {"offloaded", offloads},
                      {"gigabytes", states.device},
                      {"fits", fits},
                      {"host_gigabytes", states.host},
                      {"file_gigabytes", states.file}});
    }
  }
  constexpr std::int64_t few = 4;
  const double extra = seconds_on_host(few, states_on(few, true));
  const double rate = static_cast<double>(few) * *gpu.rates.bf16 * utilization;
  // A step of t tokens computes for 6 P t / rate seconds.
  const auto tokens = [&](double slowdown) { return extra / slowdown * rate / (6.0 * parameters); };
  const DryRun run = dry_run(training(), 0, few);
  const double device = static_cast<double>(run.device.total_peak.value) / giga;
  const double host = static_cast<double>(few * run.host->total_peak.value) / giga;
  return {
      .asked = fmt::format(
          "70B parameters under fsdp, states by the lesson, with Adam's 8 bytes a parameter on the "
          "GPUs or on one node's host ({:g} GB of memory, the rest on {:g} TB of NVMe).",
          host_memory, nvme / 1000),
      .table = table.text(),
      .found =
          {fmt::format(
               "So {} GPUs instead of 16. The host adds {:.1f} s to a step if nothing hides it: "
               "{:.1f} GB each way at {:.1f} GB/s for each GPU, Adam at {:.2f}G parameters/s, "
               "the drive at {:.1f} GB/s in and {:.1f} out. The lesson's 30 to 50 % slower is "
               "then a step of {:.0f}k to {:.0f}k tokens at {:.0f} % of {}'s bf16 rate; "
               "smaller steps lose more.",
               few, extra, 2.0 * parameters / few / giga, host_link / giga, adam_rate / giga,
               drive_read / giga, drive_write / giga, tokens(0.5) / 1000, tokens(0.3) / 1000,
               100 * utilization, gpu.name),
           fmt::format(
               "Our runtime, dry-run with Llama 2 70B on {} GPUs (bf16, checkpoint every layer, "
               "sequence 2048): {:.1f} GB on a GPU and {:.0f} GB on the host, since a 32-bit "
               "master copy, 32-bit gradients, activations and gathered layers count.",
               few, device, host)},
      .practice =
          "the master copy and gradients go to the host, too, and transfers hide behind backward.",
      .json = {{"rows", rows},
               {"seconds_on_host", extra},
               {"tokens_for_50_percent", tokens(0.5)},
               {"tokens_for_30_percent", tokens(0.3)},
               {"runtime", {{"device_gigabytes", device}, {"host_gigabytes", host}}}}};
}

}  // namespace ringworld
