#include "planner/runtime_stage.h"

#include <optional>
#include <utility>

#include "parallel/pipeline_proof.h"

namespace ringworld {

StageBooks::StageBooks(const PipelineSchedule& schedule, int stage,
                       const std::vector<ChunkBooks>& chunks, bool recomputes,
                       StrategyBooks& strategy, RuntimeUnits& units)
    : schedule_(schedule),
      chain_(schedule),
      stage_(stage),
      chunks_(chunks),
      recomputes_(recomputes),
      strategy_(strategy),
      units_(units),
      passes_(static_cast<std::size_t>(schedule.shape.micro_batches * schedule.shape.chunks)),
      batches_(static_cast<std::size_t>(schedule.shape.micro_batches)) {}

void StageBooks::run() {
  const auto offered = static_cast<std::size_t>(needs_of(schedule_).offered);
  const std::vector<PipelineAction>& actions = schedule_.actions[static_cast<std::size_t>(stage_)];
  Held input;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (i == 0) {
      input = take(actions[i]);
    }
    if (Held output = perform(actions[i], std::move(input));
        chain_.destination(stage_, actions[i])) {
      sends_.push_back(std::move(output));
    }
    input = i + 1 < actions.size() ? take(actions[i + 1]) : Held();
    wait_for_sends(offered);
  }
  wait_for_sends(0);
}

StageBooks::Pass& StageBooks::pass(const PipelineAction& action) {
  std::unique_ptr<Pass>& pass =
      passes_[static_cast<std::size_t>(action.micro_batch * schedule_.shape.chunks + action.chunk)];
  if (action.work == PipelineWork::forward && pass == nullptr) {
    std::weak_ptr<const void>& known = batches_[static_cast<std::size_t>(action.micro_batch)];
    Held batch = known.lock();
    if (batch == nullptr) {
      batch = units_.batch();
      known = batch;
    }
    pass = std::make_unique<Pass>(Pass{std::move(batch)});
  }
  return *pass;
}

Held StageBooks::take(const PipelineAction& action) {
  pass(action);
  return chain_.source(stage_, action) ? units_.between_units() : Held();
}

Held StageBooks::perform(const PipelineAction& action, Held input) {
  const ChunkBooks& chunk = chunks_[static_cast<std::size_t>(action.chunk)];
  Pass& of = pass(action);
  Held output;
  switch (action.work) {
    case PipelineWork::forward:
      return forward(chunk, of, std::move(input));
    case PipelineWork::backward:
      output = backward(chunk, of, std::move(input), true);
      break;
    case PipelineWork::backward_input:
      of.saved.put_off_weights();
      return backward(chunk, of, std::move(input), false);
    case PipelineWork::backward_weight:
      units_.add_weight_gradients(of.saved);
      for (int unit = static_cast<int>(chunk.units.size()) - 1; unit >= 0; --unit) {
        strategy_.after_backward(chunk.first + unit);
      }
      break;
  }
  passes_[static_cast<std::size_t>(action.micro_batch * schedule_.shape.chunks + action.chunk)] =
      nullptr;
  return output;
}

// Backward of a whole chain's last unit follows at once.
bool StageBooks::is_kept(const ChunkBooks& chunk, std::size_t unit) const {
  return !recomputes_ || (schedule_.shape.stages == 1 && unit + 1 == chunk.units.size());
}

Held StageBooks::forward(const ChunkBooks& chunk, Pass& pass, Held x) {
  for (std::size_t unit = 0; unit < chunk.units.size(); ++unit) {
    const bool kept = is_kept(chunk, unit);
    pass.inputs.push_back(kept ? Held() : x);
    SavedBooks dropped;
    const int own = chunk.first + static_cast<int>(unit);
    strategy_.before_forward(own);
    x = units_.forward(chunk.units[unit], x, kept ? pass.saved : dropped);
    strategy_.after_forward(own);
  }
  return x;
}

Held StageBooks::backward(const ChunkBooks& chunk, Pass& pass, Held dy, bool completes_weights) {
  for (std::size_t unit = chunk.units.size(); unit-- > 0;) {
    const int own = chunk.first + static_cast<int>(unit);
    if (!is_kept(chunk, unit)) {
      strategy_.before_recompute(own);
      units_.forward(chunk.units[unit], std::exchange(pass.inputs[unit], {}), pass.saved);
    }
    strategy_.before_backward(own);
    dy = units_.backward(chunk.units[unit], dy, pass.saved);
    if (completes_weights) {
      strategy_.after_backward(own);
    }
  }
  return dy;
}

void StageBooks::wait_for_sends(std::size_t left) {
  while (sends_.size() > left) {
    sends_.pop_front();
  }
}

}  // namespace ringworld
