#include "cli/pipeline_trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr double microseconds = 1000;  // in a unit of time

class Trace {
 public:
  Trace(const PipelineSchedule& schedule, const PipelineTimeline& timeline)
      : schedule_(schedule), timeline_(timeline) {}

  std::string text(std::string_view title) {
    add({{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"args", {{"name", title}}}});
    for (int stage = 0; stage < schedule_.shape.stages; ++stage) {
      name_track(stage);
      for (const TimedAction& timed : timeline_.stages[stage]) {
        add_action(stage, timed);
      }
    }
    for (const PipelineMessage& message : timeline_.messages) {
      add_message(message);
    }
    return fmt::format("{{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n{}\n]}}\n", events_);
  }

 private:
  void add(const Json& event) {
    events_ += events_.empty() ? "" : ",\n";
    events_ += event.dump();
  }

  void name_track(int stage) {
    add({{"ph", "M"},
         {"name", "thread_name"},
         {"pid", 0},
         {"tid", stage},
         {"args", {{"name", fmt::format("stage {}", stage)}}}});
    add({{"ph", "M"},
         {"name", "thread_sort_index"},
         {"pid", 0},
         {"tid", stage},
         {"args", {{"sort_index", stage}}}});
  }

  std::string of_chunk(int chunk) const {
    return schedule_.shape.chunks > 1 ? fmt::format(", chunk {}", chunk) : "";
  }

  void add_action(int stage, const TimedAction& timed) {
    const auto& [work, micro_batch, chunk] = timed.action;
    add({{"ph", "X"},
         {"name", fmt::format("{}, stage {}, micro-batch {}{}", name_of(work), stage, micro_batch,
                              of_chunk(chunk))},
         {"cat", name_of(work)},
         {"pid", 0},
         {"tid", stage},
         {"ts", timed.start * microseconds},
         {"dur", (timed.end - timed.start) * microseconds},
         {"args", {{"stage", stage}, {"micro_batch", micro_batch}, {"chunk", chunk}}}});
  }

  // The ends of an arrow lie within the actions that they belong to: where the one begins that
  // computed the message, and where the one begins that uses it.
  void add_message(const PipelineMessage& message) {
    const std::string name = fmt::format(
        "{} of micro-batch {}, stage {} to {}{}", message.gradient ? "gradients" : "activations",
        message.micro_batch, message.from.stage, message.to.stage, of_chunk(message.from.chunk));
    const auto event = [&](std::string_view phase, std::string_view category, int stage,
                           double time) {
      return Json{{"ph", phase}, {"name", name}, {"cat", category},          {"id", id_},
                  {"pid", 0},    {"tid", stage}, {"ts", time * microseconds}};
    };
    if (message.arrived > message.sent) {
      add(event("b", "message", message.from.stage, message.sent));
      add(event("e", "message", message.from.stage, message.arrived));
    }
    add(event("s", "arrow", message.from.stage, message.begun));
    Json end = event("f", "arrow", message.to.stage, message.used);
    end["bp"] = "e";
    add(end);
    ++id_;
  }

  const PipelineSchedule& schedule_;
  const PipelineTimeline& timeline_;
  std::string events_;
  int id_ = 0;
};

}  // namespace

std::string to_trace(const PipelineSchedule& schedule, const PipelineTimeline& timeline,
                     std::string_view title) {
  return Trace(schedule, timeline).text(title);
}

}  // namespace ringworld
