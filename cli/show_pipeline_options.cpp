#include "cli/show_pipeline_options.h"

#include <cstdint>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr std::int64_t most_forwards = 1'000'000;
constexpr double longest = 1e9;

std::string list_of_schedules() {
  std::string list;
  for (const PipelineKind& kind : pipeline_kinds()) {
    list += fmt::format("  {:<18}{}\n", kind.name, kind.source);
  }
  return list;
}

}  // namespace

void declare(OptionSet& set, ShowPipelineOptions& o) {
  set.usage("ringworld show pipeline");
  set.group("Pipeline");
  set.choice("schedule", o.schedule, pipeline_names(), "In which order stages work.");
  set.integer("stages", o.shape.stages, 1, "N", "Ranks that the model's layers are cut over.");
  set.integer("micro-batches", o.shape.micro_batches, 1, "N",
              "That go through the pipeline in one optimizer step.");
  set.custom("chunks", "N", "1; 2 for interleaved-1f1b",
             "Parts of the model on each stage, one from each round through all stages.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.shape.chunks =
                   static_cast<int>(set.parse_integer("chunks", values.front(), 1, most_forwards));
             });

  set.group("Times, of one micro-batch on a whole stage, in any one unit");
  set.number("forward-time", o.times.forward, {0, longest, false, true}, "X", "Forward.");
  set.number("backward-input-time", o.times.backward_input, {0, longest, true, true}, "X",
             "The half of backward that computes the gradient of the input.");
  set.number("backward-weight-time", o.times.backward_weight, {0, longest, true, true}, "X",
             "The half that computes the gradients of the parameters.");
  set.number("communication-time", o.times.communication, {0, longest, true, true}, "X",
             "Until another stage has what was computed for it; stages work on in the meantime.");

  set.group("Output");
  set.text("svg", o.svg, "FILE.svg", "Draw the timeline.");
  set.text(
      "trace", o.trace, "FILE.json",
      "The timeline for Perfetto or chrome://tracing, one track for each stage, a unit of time "
      "as a millisecond.");
  set.text("json", o.json, "FILE.json",
           "Write schedule, times, bubble, live micro-batches and verdict to this file; - is "
           "standard output, instead of the text.");
  set.examples(
      "Schedules:\n" + list_of_schedules() +
      "\nExamples:\n"
      "  ringworld show pipeline --schedule 1f1b --stages 4 --micro-batches 8\n"
      "  ringworld show pipeline --schedule interleaved-1f1b --chunks 2 --svg timeline.svg\n"
      "  ringworld show pipeline --schedule zb-h2 --stages 8 --micro-batches 24 \\\n"
      "    --forward-time 18.522 --backward-input-time 18.086 "
      "--backward-weight-time 9.337 \\\n"
      "    --communication-time 0.601 --trace trace.json");
}

void check(ShowPipelineOptions& o) {
  const PipelineKind& kind = find_pipeline(o.schedule);
  if (o.shape.chunks == 0) {
    o.shape.chunks = kind.usual_chunks;
  }
  const auto forwards = static_cast<double>(o.shape.stages) * o.shape.micro_batches *
                        static_cast<double>(o.shape.chunks);
  if (forwards > static_cast<double>(most_forwards)) {
    throw UsageError(fmt::format(
        "--stages, --micro-batches, --chunks: {} x {} x {} are {:.0f} forwards, at most "
        "{} can be shown; ask for fewer micro-batches",
        o.shape.stages, o.shape.micro_batches, o.shape.chunks, forwards, most_forwards));
  }
  if (const std::string reason = kind.refuses(o.shape); !reason.empty()) {
    throw UsageError(
        fmt::format("--schedule: '{}': cannot serve --stages {}, --micro-batches {} "
                    "and --chunks {}: {}",
                    kind.name, o.shape.stages, o.shape.micro_batches, o.shape.chunks, reason));
  }
}

}  // namespace ringworld
