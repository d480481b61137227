// The proof of a pipeline schedule: all stages run at once, in one process, on nothing but who has
// computed what.
//
// It shows, for one shape:
//  - every micro-batch runs forward once and backward once, both halves, in every chunk of every
//    stage; backward after its own forward, the weight half after the input half;
//  - every action finds its input: the forward of the part before it in the chain, the gradient of
//    the part behind it, for the same micro-batch;
//  - every message is received, and nobody waits for ever.
//
// The messages are those of runtime/transport.h without any buffering or tags: what one stage
// sends to another meets what that one receives in the order of posting, activations and gradients
// alike, and is over only when both ends are posted. After an action a stage posts the send of its
// output and, at the same time, the receive of the next action's input; it runs that action when
// the input is there. Its own earlier outputs stay in its own memory until they are taken, and a
// stage that offers more than `offered` of them waits until one is. 0 is strict rendezvous: both
// messages are over before the next action begins. The least `offered` for which nobody waits for
// ever is part of the result; what is stuck for any number is refuted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/pipeline_schedule.h"

namespace ringworld {

// Activations that a stage holds, as micro-batches of one chunk each: divide by the number of
// chunks for whole stages. What an action uses is held while it runs.
struct PipelinePeak {
  int held = 0;   // from the forward to the end of the last half of backward
  int whole = 0;  // of these, at most so many still wait for the end of the input half; of the
                  // others only what the weight half needs is left
  bool operator==(const PipelinePeak&) const = default;
};

// Nothing when the schedule proves right; otherwise what is wrong, with stage, action and
// micro-batch.
std::optional<std::string> refute(const PipelineSchedule& schedule);

// The same for a row of the table, its closed form of live micro-batches included. A kind that
// refuses the shape has nothing to prove.
std::optional<std::string> refute(const PipelineKind& kind, const PipelineShape& shape);

// What a right schedule needs; std::invalid_argument with the refutation for a wrong one.
struct PipelineNeeds {
  int offered = 0;                  // see above
  std::vector<PipelinePeak> peaks;  // by stage
};
PipelineNeeds needs_of(const PipelineSchedule& schedule);

}  // namespace ringworld
