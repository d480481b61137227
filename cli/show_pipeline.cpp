// ringworld show pipeline: the timeline of a pipeline schedule, what it costs, what stages hold,
// and whether it is proved.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "cli/pipeline_chart.h"
#include "cli/pipeline_text.h"
#include "cli/pipeline_trace.h"
#include "parallel/pipeline_proof.h"
#include "parallel/pipeline_simulation.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

// "4 stages", "1 chunk", "8 micro-batches".
std::string counted(int count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : what.ends_with("ch") ? "es" : "s");
}

std::string title_of(const PipelineKind& kind, const PipelineShape& shape) {
  return fmt::format(
      "{}, {}, {}{}", kind.name, counted(shape.stages, "stage"),
      counted(shape.micro_batches, "micro-batch"),
      shape.chunks == 1 ? "" : fmt::format(", {} on each stage", counted(shape.chunks, "chunk")));
}

// A time, without the rounding of sums.
std::string time_text(double time, double total) {
  return fmt::format("{:.6g}", std::abs(time) < 1e-9 * total ? 0 : time);
}

std::string idle_text(const Idle& idle, double total) {
  return fmt::format("{}: {:.1f} % over ideal, {:.1f} % of the", time_text(idle.time, total),
                     100 * std::abs(idle.over_ideal), 100 * std::abs(idle.of_total));
}

std::string cost_text(const PipelineKind& kind, const PipelineShape& shape,
                      const PipelineTimes& times, const PipelineTimeline& timeline) {
  const double total = timeline.total;
  std::string text = fmt::format(
      "total time     {}, of which every stage works {}\n"
      "bubble         {} total\n",
      time_text(total, total), time_text(timeline.work, total), idle_text(timeline.idle(), total));
  if (total - timeline.longest_stage > 1e-9 * total) {
    text += fmt::format(
        "longest stage  {} from its first action to its last: what a step costs where stages\n"
        "               go on to the next one without waiting for all others\n"
        "its bubble     {} longest stage\n",
        time_text(timeline.longest_stage, total),
        idle_text(timeline.idle_of_longest_stage(), total));
  }
  const std::optional<double> closed = kind.bubble.value(shape, times);
  text += fmt::format("closed form    {}{}{}\n", kind.bubble.text,
                      closed ? fmt::format(" = {}", time_text(*closed, total)) : "",
                      times.communication > 0 ? ", without communication" : "");
  if (!kind.bubble.condition.empty()) {
    text += fmt::format("               {} {}\n", closed ? "for" : "but only for",
                        kind.bubble.condition);
  }
  return text;
}

// "4 3 2 1", or "8 on every stage"; in units of whole stages.
std::string by_stage(const std::vector<int>& values, int chunks) {
  const auto one = [&](int value) { return fmt::format("{:.4g}", double(value) / chunks); };
  if (values.size() > 1 && std::ranges::count(values, values[0]) == std::ssize(values)) {
    return fmt::format("{} on every stage", one(values[0]));
  }
  std::string text;
  std::size_t line = 15;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string next = one(values[i]);
    const bool wraps = line + 1 + next.size() > 79;
    text += i == 0 ? "" : wraps ? fmt::format("\n{:15}", "") : " ";
    text += next;
    line = (wraps ? 15 : line + 1) + next.size();
  }
  return text;
}

std::string live_text(const PipelineKind& kind, const PipelineSchedule& schedule,
                      const PipelineNeeds& needs) {
  const int chunks = schedule.shape.chunks;
  std::vector<int> held;
  std::vector<int> whole;
  for (const PipelinePeak& peak : needs.peaks) {
    held.push_back(peak.held);
    whole.push_back(peak.whole);
  }
  std::string text = fmt::format("live at peak   {}\n", by_stage(held, chunks));
  if (held != whole) {
    text += fmt::format("  whole        {}\n", by_stage(whole, chunks));
    text += "               (of the others only what the gradients of the weights need)\n";
  }
  return text + fmt::format("closed form    {}{}\n", kind.live.text,
                            chunks == 1 ? "" : fmt::format(", {} to a stage", chunks));
}

std::string verdict_text(const PipelineShape& shape, const PipelineNeeds& needs) {
  return fmt::format(
      "Proof: right for this shape.\n"
      "  Each micro-batch runs forward and backward once{}, after its inputs; every\n"
      "  message is received, in the order of sending; nobody waits for ever without "
      "buffering{}.\n",
      shape.chunks == 1 ? " on every stage" : " in every chunk",
      needs.offered == 0
          ? ",\n  even if both ends of a message must meet before a stage goes on"
          : fmt::format(", if\n  a stage may go on while {} it computed {} not yet taken",
                        needs.offered == 1 ? "one output that" : counted(needs.offered, "output"),
                        needs.offered == 1 ? "is" : "are"));
}

Json json_of(const Idle& idle) {
  return {{"time", idle.time}, {"over_ideal", idle.over_ideal}, {"of_total", idle.of_total}};
}

Json timeline_json(const PipelineTimeline& timeline) {
  Json stages = Json::array();
  for (const std::vector<TimedAction>& actions : timeline.stages) {
    Json of_stage = Json::array();
    for (const auto& [action, start, end] : actions) {
      of_stage.push_back({{"work", name_of(action.work)},
                          {"micro_batch", action.micro_batch},
                          {"chunk", action.chunk},
                          {"start", start},
                          {"end", end}});
    }
    stages.push_back(std::move(of_stage));
  }
  return stages;
}

Json json_of(const PipelineKind& kind, const PipelineSchedule& schedule, const PipelineTimes& times,
             const std::optional<std::string>& wrong) {
  Json json = {{"schema", "ringworld.show_pipeline"},
               {"version", 1},
               {"schedule", kind.name},
               {"source", kind.source},
               {"stages", schedule.shape.stages},
               {"micro_batches", schedule.shape.micro_batches},
               {"chunks", schedule.shape.chunks},
               {"parts", schedule.parts},
               {"times",
                {{"forward", times.forward},
                 {"backward_input", times.backward_input},
                 {"backward_weight", times.backward_weight},
                 {"communication", times.communication}}},
               {"proof", {{"right", !wrong}, {"refutation", wrong ? Json(*wrong) : Json()}}}};
  if (wrong) {
    return json;
  }
  const PipelineNeeds needs = needs_of(schedule);
  const PipelineTimeline timeline = simulate(schedule, times);
  const std::optional<double> closed = kind.bubble.value(schedule.shape, times);
  json["proof"]["outputs_on_offer"] = needs.offered;
  json["total_time"] = timeline.total;
  json["work"] = timeline.work;
  json["bubble"] = json_of(timeline.idle());
  json["longest_stage"] = {{"time", timeline.longest_stage},
                           {"bubble", json_of(timeline.idle_of_longest_stage())},
                           {"closed_form",
                            {{"formula", kind.bubble.text},
                             {"condition", kind.bubble.condition},
                             {"value", closed ? Json(*closed) : Json()}}}};
  Json live = Json::array();
  for (const PipelinePeak& peak : needs.peaks) {
    live.push_back({{"micro_batches", static_cast<double>(peak.held) / schedule.shape.chunks},
                    {"chunks", peak.held},
                    {"whole_chunks", peak.whole}});
  }
  json["live"] = {{"formula", kind.live.text}, {"stages", std::move(live)}};
  json["timeline"] = timeline_json(timeline);
  return json;
}

}  // namespace

ExitCode run_show_pipeline(const ShowPipelineOptions& o, Transport& transport) {
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  check_writable("--svg", o.svg);
  check_writable("--trace", o.trace);
  check_writable("--json", o.json);
  const PipelineKind& kind = find_pipeline(o.schedule);
  const PipelineSchedule schedule = emit_pipeline(kind, o.shape);
  const std::string title = title_of(kind, o.shape);
  const std::optional<std::string> wrong = refute(kind, o.shape);
  if (wrong) {
    if (o.json != "-") {
      std::cout << fmt::format("{}\n\nProof: WRONG\n  {}\n", title, *wrong) << std::flush;
    }
  } else {
    const PipelineNeeds needs = needs_of(schedule);
    const PipelineTimeline timeline = simulate(schedule, o.times);
    if (o.json != "-") {
      std::cout << title << "\n\n"
                << timeline_text(schedule, timeline, find_terminal().columns) << "\n"
                << cost_text(kind, o.shape, o.times, timeline) << "\n"
                << live_text(kind, schedule, needs) << "\n"
                << verdict_text(o.shape, needs) << std::flush;
    }
    const Idle idle = timeline.idle();
    write_file("--svg", o.svg,
               o.svg.empty() ? ""
                             : to_svg(schedule, timeline, needs, title,
                                      fmt::format("total time {:.6g}; bubble {:.1f} % over ideal, "
                                                  "{:.1f} % of the total",
                                                  timeline.total, 100 * idle.over_ideal,
                                                  100 * idle.of_total)));
    write_file("--trace", o.trace, o.trace.empty() ? "" : to_trace(schedule, timeline, title));
  }
  if (!o.json.empty()) {
    write_json(o.json, json_of(kind, schedule, o.times, wrong));
  }
  return wrong ? ExitCode::failed : ExitCode::ok;
}

}  // namespace ringworld
