// When everything of a pipeline schedule happens, if each kind of work takes a given time.
//
// An action begins when the stage's action before it is over and its input is there. A message
// takes `communication` from the end of the action that computed it, whatever else is under way,
// and holds up nobody but who waits for it: an output waits for its receiver in its stage's memory
// for as long as it must.
#pragma once

#include <vector>

#include "parallel/pipeline_schedule.h"

namespace ringworld {

struct TimedAction {
  PipelineAction action;
  double start;
  double end;
};

// From one stage to another. What passes between chunks of one stage is no message.
struct PipelineMessage {
  bool gradient;  // else activations
  int micro_batch;
  PipelinePlace from;
  PipelinePlace to;
  double begun;    // when the action that computed it began
  double sent;     // and ended
  double arrived;  // `communication` later
  double used;     // when the action that it is for began
};

// Time without work, out of a time that holds `work` of it.
struct Idle {
  double time;        // idle
  double over_ideal;  // as a share of the time that the work alone would take: (p - 1) / m
  double of_total;    // as a share of all the time: (p - 1) / (m + p - 1)
};

struct PipelineTimeline {
  std::vector<std::vector<TimedAction>> stages;
  std::vector<PipelineMessage> messages;  // by the stage that receives, then in its order
  double work = 0;                        // of each stage; all have the same
  // From the first action of all to the last.
  double total = 0;
  // Of the stage that takes longest from its own first action to its own last. The same, where the
  // first stage to begin is the last to end; less, where later stages end later. It is what a step
  // costs in a row of steps when no stage waits for all others in between, as Qi et al. count it.
  double longest_stage = 0;

  Idle idle() const;                   // within total: of every stage, the bubble
  Idle idle_of_longest_stage() const;  // within longest_stage
};

// Throws std::invalid_argument when the schedule cannot come to its end; prove it first.
PipelineTimeline simulate(const PipelineSchedule& schedule, const PipelineTimes& times);

}  // namespace ringworld
