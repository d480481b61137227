// One step's micro-batches on a pipeline stage, or on a whole chain of units, in bytes:
// parallel/pass.cpp and micro_batch.cpp without their tensors.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "parallel/pipeline_schedule.h"
#include "planner/runtime_books.h"
#include "planner/runtime_strategy.h"
#include "planner/runtime_units.h"

namespace ringworld {

// A part of the chain that a stage has.
struct ChunkBooks {
  std::vector<UnitKind> units;
  int first;  // unit, of the stage
};

class StageBooks {
 public:
  // All outlive this. `recomputes`: of every unit only its input is kept.
  StageBooks(const PipelineSchedule& schedule, int stage, const std::vector<ChunkBooks>& chunks,
             bool recomputes, StrategyBooks& strategy, RuntimeUnits& units);

  void run();

 private:
  // One micro-batch in one chunk.
  struct Pass {
    Held batch;
    SavedBooks saved = {};
    std::vector<Held> inputs = {};  // by unit, where only those are kept
  };

  Pass& pass(const PipelineAction& action);
  bool is_kept(const ChunkBooks& chunk, std::size_t unit) const;
  Held take(const PipelineAction& action);
  Held perform(const PipelineAction& action, Held input);
  Held forward(const ChunkBooks& chunk, Pass& pass, Held x);
  Held backward(const ChunkBooks& chunk, Pass& pass, Held dy, bool completes_weights);
  void wait_for_sends(std::size_t left);

  const PipelineSchedule& schedule_;
  const PipelineChain chain_;
  const int stage_;
  const std::vector<ChunkBooks>& chunks_;
  const bool recomputes_;
  StrategyBooks& strategy_;
  RuntimeUnits& units_;
  std::vector<std::unique_ptr<Pass>> passes_;       // by micro-batch and chunk
  std::vector<std::weak_ptr<const void>> batches_;  // by micro-batch
  std::deque<Held> sends_;                          // outputs that may be on their way
};

}  // namespace ringworld
