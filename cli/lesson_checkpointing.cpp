// Of the lesson: the exercise on activation checkpointing. Memory and operations are those of our
// own runtime's code, from a dry run.
#include <fmt/format.h>

#include "cli/console.h"
#include "cli/dry_run.h"
#include "cli/lesson.h"
#include "planner/conventions.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t layers = 32;
constexpr std::int64_t sequence = 2048;
constexpr std::int64_t batch = 8;
constexpr std::int64_t hidden = 4096;

// One GPU and one micro-batch; of every k layers only the first one's input is kept, with 0 all.
TrainOptions training(std::int64_t k) {
  TrainOptions options;
  options.model.name = "llama-2-7b";
  options.precision = DType::bf16;
  options.data.sequence_length = sequence;
  options.global_batch = batch;
  options.micro_batch = batch;
  options.recomputation.checkpoint = k;
  return options;
}

// GB of one layer by the lesson: four numbers for each element of the width. Its input is one.
double lesson_layer() {
  const ConventionReport report =
      lesson_memory({.shape = LessonShape{sequence, batch, hidden, /*layers=*/1}});
  return *report.total / report.bytes_of_unit;
}

// All layers, or every k-th input and the k layers that are computed again.
double lesson_activations(std::int64_t k) {
  const double layer = lesson_layer();
  return k == 0 ? static_cast<double>(layers) * layer
                : static_cast<double>(layers / k) * layer / 4 + static_cast<double>(k) * layer;
}

}  // namespace

LessonPart lesson_checkpointing(LessonRanks& /*ranks*/) {
  Table table({{"every K layers"},
               {"activations GB", Align::right},
               {"saved", Align::right},
               {"compute added", Align::right},
               {"lesson's GB", Align::right},
               {"saved", Align::right},
               {"compute added", Align::right}});
  Json rows = Json::array();
  double all_kept = 0;
  double least_flops = 0;
  for (const std::int64_t k : {0, 1, 2, 4, 8, 16, 32}) {
    const DryRun run = dry_run(training(k), 0, 1);
    const double kept = static_cast<double>(run.device.peak_in(Category::activations).value) / 1e9;
    const double flops = run.flops.total();
    if (k == 0) {
      all_kept = kept;
      least_flops = flops;
    }
    const double added = flops / least_flops - 1;
    const double by_lesson = lesson_activations(k);
    // A forward is a third of forward and backward.
    const double added_by_lesson = k == 0 ? 0 : 1.0 / 3;
    const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    table.add_row({k == 0 ? "keep all" : fmt::format("{}", k), fmt::format("{:.2f}", kept),
                   percent(1 - kept / all_kept), percent(added), fmt::format("{:.2f}", by_lesson),
                   percent(1 - by_lesson / lesson_activations(0)), percent(added_by_lesson)});
    rows.push_back({{"every", k},
                    {"activations_gigabytes", kept},
                    {"saved", 1 - kept / all_kept},
                    {"compute_added", added},
                    {"lesson_gigabytes", by_lesson},
                    {"lesson_saved", 1 - by_lesson / lesson_activations(0)},
                    {"lesson_compute_added", added_by_lesson}});
  }
  return {
      .asked = fmt::format(
          "Llama 2 7B in bf16, sequence {}, batch {}, one GPU: of every K layers only the first "
          "one's input is kept, and backward runs their forward again. Left, the peak and the "
          "operations of our runtime, from its dry run; right, the lesson's 4 numbers a layer, of "
          "which one is the input, with a forward as a third of a step.",
          sequence, batch),
      .table = table.text(),
      .found = {"Full recomputation adds about 33 %, less what is never computed twice: the head, "
                "the embedding and the last group of layers, whose backward follows at once. The "
                "least memory lies between: inputs of all groups and one group whole."},
      .practice =
          "often attention alone is recomputed (selective), which costs a few percent of compute.",
      .json = {{"model", "llama-2-7b"}, {"rows", rows}}};
}

}  // namespace ringworld
