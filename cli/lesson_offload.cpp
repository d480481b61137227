// Of the lesson: the exercise on ZeRO-Offload. By the lesson's bytes, and by our own runtime's.
#include <algorithm>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/dry_run.h"
#include "cli/lesson.h"
#include "planner/conventions.h"
#include "planner/hardware.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr double giga = 1e9;
constexpr std::int64_t parameters = 70'000'000'000;
constexpr double host_memory = 512;  // GB of a node, as the exercise says
constexpr double nvme = 2000;        // GB of a node

constexpr double utilization = 0.4;  // of the GPU's dense rate: an assumption

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

// Of one step, nothing hidden behind compute: gradients down, Adam on the node's CPUs, weights up;
// and what is on its drives in and out.
double seconds_on_host(std::int64_t gpus, const States& states, const Machine& machine) {
  const double bytes_each_way = 2.0 * parameters / static_cast<double>(gpus);
  return 2 * bytes_each_way / machine.host_link.value + parameters / machine.adam_rate.value +
         states.file * giga * (1 / machine.nvme_read.value + 1 / machine.nvme_write.value);
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
  const Machines machines;
  const Machine& gpu = machines.find("A100-80GB");
  const double room = gpu.memory.value / giga;
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
  const double extra = seconds_on_host(few, states_on(few, true), gpu);
  const double rate = static_cast<double>(few) * gpu.bf16.value * utilization;
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
               "a node's drives at {:.1f} GB/s in and {:.1f} out. The lesson's 30 to 50 % slower "
               "is "
               "then a step of {:.0f}k to {:.0f}k tokens at {:.0f} % of {}'s bf16 rate; "
               "smaller steps lose more.",
               few, extra, 2.0 * parameters / few / giga, gpu.host_link.value / giga,
               gpu.adam_rate.value / giga, gpu.nvme_read.value / giga, gpu.nvme_write.value / giga,
               tokens(0.5) / 1000, tokens(0.3) / 1000, 100 * utilization, gpu.name),
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
