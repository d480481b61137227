// The orders of the known schedules, stage by stage. In all of them every chunk's micro-batches go
// forward in their order and so do their backward halves, so that gradients add up in that order,
// as in a single process.
//
// All but fill-drain have three phases. Warm-up: a stage runs forward alone, `ahead` times, so
// that the first gradients are back when it needs work. Then forward and backward alternate, and
// what a stage holds stays the same. At the end there is only backward left.
#include <algorithm>

#include "parallel/pipeline_schedule.h"

namespace ringworld {
namespace {

PipelineSchedule empty(const PipelineShape& shape) {
  return {shape, looped_parts(shape),
          std::vector<std::vector<PipelineAction>>(static_cast<std::size_t>(shape.stages))};
}

// A stage's backward of micro-batch i comes `ahead` forwards after its own, and the weight half
// `behind` micro-batches after the input half.
PipelineSchedule zero_bubble(const PipelineShape& shape, int steepness) {
  PipelineSchedule schedule = empty(shape);
  const int m = shape.micro_batches;
  for (int stage = 0; stage < shape.stages; ++stage) {
    const int ahead = std::min(steepness * (shape.stages - stage - 1), m);
    const int behind = std::min(steepness * stage, m);
    std::vector<PipelineAction>& actions = schedule.actions[stage];
    for (int i = 0; i < ahead; ++i) {
      actions.push_back({PipelineWork::forward, i});
    }
    for (int i = 0; i < m; ++i) {
      if (ahead + i < m) {
        actions.push_back({PipelineWork::forward, ahead + i});
      }
      actions.push_back({PipelineWork::backward_input, i});
      if (i >= behind) {
        actions.push_back({PipelineWork::backward_weight, i - behind});
      }
    }
    for (int i = m - behind; i < m; ++i) {
      actions.push_back({PipelineWork::backward_weight, i});
    }
  }
  return schedule;
}

}  // namespace

// All forward, then all backward. GPipe itself runs backward in reverse order; in the order of the
// micro-batches it takes the same time.
PipelineSchedule fill_drain(const PipelineShape& shape) {
  PipelineSchedule schedule = empty(shape);
  for (std::vector<PipelineAction>& actions : schedule.actions) {
    for (const PipelineWork work : {PipelineWork::forward, PipelineWork::backward}) {
      for (int i = 0; i < shape.micro_batches; ++i) {
        actions.push_back({work, i});
      }
    }
  }
  return schedule;
}

// The warm-up is as long as the way to the last stage, or as there are micro-batches.
PipelineSchedule one_f_one_b(const PipelineShape& shape) {
  PipelineSchedule schedule = empty(shape);
  const int m = shape.micro_batches;
  for (int stage = 0; stage < shape.stages; ++stage) {
    const int ahead = std::min(shape.stages - stage - 1, m);
    std::vector<PipelineAction>& actions = schedule.actions[stage];
    for (int i = 0; i < ahead; ++i) {
      actions.push_back({PipelineWork::forward, i});
    }
    for (int i = 0; i < m; ++i) {
      if (ahead + i < m) {
        actions.push_back({PipelineWork::forward, ahead + i});
      }
      actions.push_back({PipelineWork::backward, i});
    }
  }
  return schedule;
}

// Forward takes a group of p micro-batches through chunk 0, then the same ones through chunk 1,
// and so on; then comes the next group. Backward does the same from the last chunk on. So the k-th
// forward of a stage is micro-batch (k / (p v)) p + k mod p in chunk (k mod (p v)) / p. The first
// gradient comes back to stage s after the (v - 1) p forwards of the earlier chunks and the way to
// the last stage and back, 2 (p - s - 1).
PipelineSchedule interleaved(const PipelineShape& shape) {
  PipelineSchedule schedule = empty(shape);
  const int p = shape.stages;
  const int v = shape.chunks;
  const int runs = shape.micro_batches * v;
  const auto micro_batch = [&](int k) { return k / (p * v) * p + k % p; };
  const auto chunk = [&](int k) { return k % (p * v) / p; };
  for (int stage = 0; stage < p; ++stage) {
    const int ahead = std::min(2 * (p - stage - 1) + (v - 1) * p, runs);
    std::vector<PipelineAction>& actions = schedule.actions[stage];
    for (int k = 0; k < ahead; ++k) {
      actions.push_back({PipelineWork::forward, micro_batch(k), chunk(k)});
    }
    for (int k = 0; k < runs; ++k) {
      if (ahead + k < runs) {
        actions.push_back({PipelineWork::forward, micro_batch(ahead + k), chunk(ahead + k)});
      }
      actions.push_back({PipelineWork::backward, micro_batch(k), v - 1 - chunk(k)});
    }
  }
  return schedule;
}

// As 1F1B, with the input half of backward alone on the way back. Stage s keeps s weight halves
// for the end, where 1F1B idles: with them it holds as many micro-batches as the first stage.
PipelineSchedule zero_bubble_h1(const PipelineShape& shape) {
  return zero_bubble(shape, 1);
}

// Twice as many forwards in the warm-up as H1, so that the first stage does not idle before its
// first backward, and twice as many weight halves kept for the end.
PipelineSchedule zero_bubble_h2(const PipelineShape& shape) {
  return zero_bubble(shape, 2);
}

}  // namespace ringworld
