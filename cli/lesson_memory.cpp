// Of the lesson: memory for each GPU, mixed precision, and the three axes together.
#include <algorithm>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/lesson.h"
#include "planner/conventions.h"
#include "planner/memory.h"
#include "planner/model_input.h"
#include "runtime/hardware.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr double giga = 1e9;

double gigabytes(double bytes) {
  return bytes / giga;
}

double total_of(const LessonQuestion& question) {
  return gigabytes(*lesson_memory(question).total);
}

double item_of(const ConventionReport& report, std::string_view name) {
  const auto row = std::ranges::find(report.rows, name, &ConventionRow::name);
  return gigabytes(row->device);
}

// What is left when activations are not counted.
double states_of(const LessonQuestion& question) {
  const ConventionReport report = lesson_memory(question);
  return gigabytes(*report.total) - item_of(report, "activations");
}

std::int64_t billions(std::int64_t count) {
  return count * 1'000'000'000;
}

}  // namespace

LessonPart lesson_memory_tables(LessonRanks& /*ranks*/) {
  const Accelerator& gpu = find_accelerator("A100-80GB");
  const double room = gigabytes(static_cast<double>(gpu.memory.value));
  struct Row {
    std::int64_t billions;
    Sharding sharding;
    std::int64_t gpus;
  };
  Table table({{"params"},
               {"sharding"},
               {"GPUs", Align::right},
               {"per GPU GB", Align::right},
               {fmt::format("fits {:g} GB", room)},
               {"without activations GB", Align::right}});
  Json rows = Json::array();
  for (const Row& row :
       {Row{7, Sharding::none, 1}, Row{7, Sharding::zero3, 8}, Row{70, Sharding::none, 1},
        Row{70, Sharding::zero3, 8}, Row{70, Sharding::zero3, 16}, Row{405, Sharding::none, 1},
        Row{405, Sharding::zero3, 64}, Row{405, Sharding::zero3, 128}}) {
    const LessonQuestion question{
        .parameters = billions(row.billions), .sharding = row.sharding, .gpus = row.gpus};
    const double total = total_of(question);
    const double states = states_of(question);
    const std::string sharding = row.sharding == Sharding::none ? "none" : "fsdp";
    table.add_row({fmt::format("{}B", row.billions), sharding, fmt::format("{}", row.gpus),
                   fmt::format("{:.1f}", total), total <= room ? "yes" : "no",
                   fmt::format("{:.1f}", states)});
    rows.push_back({{"billions", row.billions},
                    {"sharding", sharding},
                    {"gpus", row.gpus},
                    {"gigabytes", total},
                    {"fits", total <= room},
                    {"gigabytes_without_activations", states}});
  }
  const LessonQuestion shaped{
      .parameters = billions(7),
      .shape = LessonShape{.sequence_length = 2048, .batch = 8, .hidden = 4096, .layers = 32}};
  const double activations = item_of(lesson_memory(shaped), "activations");
  const LessonQuestion largest{.parameters = billions(405)};
  const std::int64_t smallest =
      lesson_smallest_gpus(largest, static_cast<double>(gpu.memory.value));
  return {
      .asked =
          "Bytes of one GPU by the lesson's convention: weights 2, gradients 2 and Adam 8 bytes "
          "a parameter, divided by fsdp; activations half the weights, not divided.",
      .table = table.text(),
      .found = {fmt::format(
                    "7B with sequence 2048, batch 8, hidden 4096, 32 layers: activations {:.2f} "
                    "GB, total {:.2f} GB.",
                    activations, total_of(shaped)),
                fmt::format(
                    "405B needs {:.0f} GB without activations: at least {} GPUs of {:g} GB.",
                    states_of(largest), smallest, room)},
      .practice =
          "a master copy, logits, buckets and gathered layers count, too: ringworld plan memory.",
      .json = {{"rows", rows},
               {"with_shape",
                {{"activations_gigabytes", activations}, {"total_gigabytes", total_of(shaped)}}},
               {"405b_without_activations_gigabytes", states_of(largest)},
               {"405b_smallest_gpus", smallest}}};
}

LessonPart lesson_mixed_precision(LessonRanks& /*ranks*/) {
  // Adam's two moments, and the 32-bit copy where there is one, are its bytes.
  const auto fp32 = [](std::int64_t p) {
    return states_of({.parameters = p, .precision_bytes = 4, .optimizer_bytes = 8});
  };
  const auto fp16 = [](std::int64_t p) {
    return states_of({.parameters = p, .precision_bytes = 2, .optimizer_bytes = 4 + 8});
  };
  const auto bf16 = [](std::int64_t p) {
    return states_of({.parameters = p, .precision_bytes = 2, .optimizer_bytes = 8});
  };
  Table table({{"params"},
               {"fp32 GB", Align::right},
               {"fp16 with master copy GB", Align::right},
               {"mixed bf16 GB", Align::right},
               {"saving", Align::right}});
  Json rows = Json::array();
  for (const std::int64_t n : {7, 13, 70, 405}) {
    const std::int64_t p = billions(n);
    const double saving = 1 - bf16(p) / fp32(p);
    table.add_row({fmt::format("{}B", n), fmt::format("{:.0f}", fp32(p)),
                   fmt::format("{:.0f}", fp16(p)), fmt::format("{:.0f}", bf16(p)),
                   fmt::format("{:.0f} %", 100 * saving)});
    rows.push_back({{"billions", n},
                    {"fp32_gigabytes", fp32(p)},
                    {"fp16_gigabytes", fp16(p)},
                    {"bf16_gigabytes", bf16(p)},
                    {"saving", saving}});
  }
  return {.asked = fmt::format(
              "Weights, gradients and Adam's state by the lesson: fp32 {:g}, fp16 with master copy "
              "{:g}, mixed bf16 {:g} bytes a parameter.",
              fp32(billions(1)), fp16(billions(1)), bf16(billions(1))),
          .table = table.text(),
          .practice =
              "bf16 has a 32-bit master copy, too (16 to 18 bytes); it saves activations and time.",
          .json = {{"bytes_per_parameter",
                    {{"fp32", fp32(billions(1))},
                     {"fp16_with_master", fp16(billions(1))},
                     {"mixed_bf16", bf16(billions(1))}}},
                   {"rows", rows}}};
}

Layout lesson_llama3_layout() {
  return {.data = 128,
          .tensor = 8,
          .pipeline = 16,
          .chunks = 7,
          .sequence_parallel = true,
          .schedule = "interleaved-1f1b",
          .sharding = Sharding::zero1,
          .micro_batch = 1,
          .global_batch = 2048,
          .sequence_length = 8192};
}

LessonPart lesson_three_axes(LessonRanks& /*ranks*/) {
  const Transformer& model = find_transformer("llama-3-405b");
  const Layout layout = lesson_llama3_layout();
  const std::string reason = refusal(layout, model, layout.gpus());
  const MemoryPlan plan = plan_memory(model, layout);
  const StageMemory& fullest = plan.worst();
  const std::int64_t parameters = count_parameters(model).total();
  Table table({{"axis"}, {"ranks", Align::right}, {"what is divided"}});
  table.add_row({"tensor", fmt::format("{}", layout.tensor), "every layer, within a node"});
  table.add_row({"pipeline", fmt::format("{}", layout.pipeline),
                 fmt::format("the {} layers, between nodes", model.layers)});
  table.add_row({"data", fmt::format("{}", layout.data), "the batch, and Adam's state (zero1)"});
  table.add_row({"all", fmt::format("{}", layout.gpus()),
                 fmt::format("{} parameters", count_text(parameters))});
  const double total = gigabytes(static_cast<double>(fullest.device.total().value));
  return {
      .asked =
          fmt::format("Llama 3 405B on TP {} x PP {} x DP {} = {} GPUs, and whether the planner "
                      "takes that layout: {}.",
                      layout.tensor, layout.pipeline, layout.data, layout.gpus(),
                      reason.empty() ? "it does" : reason),
      .table = table.text(),
      .found = {fmt::format(
          "By our own accounting the fullest GPU is on stage {}, with {} layers and {} parameters, "
          "and holds {:.1f} GB, where an H100 has {:.0f}: micro-batch 1 of {} tokens, {} "
          "micro-batches, interleaved 1F1B with 7 chunks, sequence parallelism, no recomputation.",
          fullest.stage, fullest.layers, count_text(fullest.parameters), total,
          gigabytes(static_cast<double>(find_accelerator("H100-80GB").memory.value)),
          layout.sequence_length, layout.micro_batches())},
      .practice =
          "Llama 3 had a layer fewer on its end stages, sharded gradients and had a context axis.",
      .json = {{"tensor", layout.tensor},
               {"pipeline", layout.pipeline},
               {"data", layout.data},
               {"gpus", layout.gpus()},
               {"refusal", reason},
               {"fullest_stage", fullest.stage},
               {"fullest_gigabytes", total}}};
}

}  // namespace ringworld
