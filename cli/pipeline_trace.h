// A pipeline's timeline in the Trace Event Format, which Perfetto and chrome://tracing show.
#pragma once

#include <string>
#include <string_view>

#include "parallel/pipeline_simulation.h"

namespace ringworld {

// One track for each stage, a complete event for each action, named "forward, stage 1, micro-batch
// 3", and arrows from the action that computed a message to the one that uses it. Where messages
// take time, each is an event of its own beside the tracks, too. A unit of time is a millisecond.
std::string to_trace(const PipelineSchedule& schedule, const PipelineTimeline& timeline,
                     std::string_view title);

}  // namespace ringworld
