// Of the lesson: the pipeline's table, and the exercise that holds 1F1B against it; both from
// schedules that are simulated and proved.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/console.h"
#include "cli/lesson.h"
#include "parallel/pipeline_proof.h"
#include "parallel/pipeline_simulation.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr int layers = 32;
constexpr int stages = 4;
// A layer takes a unit of time each way.
constexpr PipelineTimes times{.forward = layers / stages,
                              .backward_input = layers / stages / 2.0,
                              .backward_weight = layers / stages / 2.0};

PipelineSchedule schedule_of(std::string_view kind, int micro_batches) {
  return emit_pipeline(find_pipeline(kind), {.stages = stages, .micro_batches = micro_batches});
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

}  // namespace

LessonPart lesson_pipeline(LessonRanks& /*ranks*/) {
  Table table({{"micro-batches m", Align::right},
               {"total time", Align::right},
               {"bubble", Align::right},
               {"(p-1)/(m+p-1)", Align::right},
               {"over ideal, (p-1)/m", Align::right}});
  Json rows = Json::array();
  for (const int m : {1, 2, 4, 8, 16, 32}) {
    const PipelineTimeline timeline = simulate(schedule_of("fill-drain", m), times);
    const Idle idle = timeline.idle();
    table.add_row({fmt::format("{}", m), fmt::format("{:g}", timeline.total),
                   percent(idle.of_total), percent((stages - 1.0) / (m + stages - 1)),
                   percent(idle.over_ideal)});
    rows.push_back({{"micro_batches", m},
                    {"total_time", timeline.total},
                    {"bubble", idle.of_total},
                    {"bubble_over_ideal", idle.over_ideal}});
  }
  return {
      .asked = fmt::format(
          "{} layers on p = {} equal stages, fill-drain: all forwards, then all backwards; a "
          "stage takes {} units each way. Total time and bubble from the simulated schedule, "
          "and two closed forms.",
          layers, stages, layers / stages),
      .table = table.text(),
      .found = {"The lesson's program divides the bubble by the total time, its prose by the "
                "ideal time. It runs backwards in reverse order of the micro-batches, ours in "
                "order: the same times."},
      .practice =
          "backward takes twice as long, end stages have embedding and logits, messages take time.",
      .json = {{"layers", layers}, {"stages", stages}, {"rows", rows}}};
}

LessonPart lesson_one_f_one_b(LessonRanks& /*ranks*/) {
  constexpr int micro_batches = 8;
  Table table({{"schedule"},
               {"total time", Align::right},
               {"bubble", Align::right},
               {"live micro-batches on stages 0 to 3"}});
  Json rows = Json::array();
  for (const char* kind : {"fill-drain", "1f1b"}) {
    const PipelineSchedule schedule = schedule_of(kind, micro_batches);
    const PipelineTimeline timeline = simulate(schedule, times);
    std::vector<int> live;
    for (const PipelinePeak& peak : needs_of(schedule).peaks) {
      live.push_back(peak.held);
    }
    table.add_row({kind, fmt::format("{:g}", timeline.total), percent(timeline.idle().of_total),
                   fmt::format("{}", fmt::join(live, ", "))});
    rows.push_back({{"schedule", kind},
                    {"total_time", timeline.total},
                    {"bubble", timeline.idle().of_total},
                    {"live_micro_batches", live}});
  }
  return {
      .asked = fmt::format(
          "{} stages, {} micro-batches, {} layers: fill-drain against 1F1B, whose stages go "
          "back as soon as they can. Times from the simulation, live micro-batches from the "
          "proof of the schedule.",
          stages, micro_batches, layers),
      .table = table.text(),
      .found = {"The same bubble; what 1F1B saves is activations: at most as many micro-batches "
                "as stages are live, however many there are in a step."},
      .practice =
          "interleaved and zero-bubble schedules shrink the bubble, too: ringworld show pipeline.",
      .json = {{"stages", stages}, {"micro_batches", micro_batches}, {"rows", rows}}};
}

}  // namespace ringworld
