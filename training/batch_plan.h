// How a global batch is divided over ranks and micro-batches.
#pragma once

#include <cstdint>

namespace ringworld {

// One optimizer step trains on `global_batch` sequences. Each of `ranks` runs `accumulation_steps`
// micro-batches of `micro_batch` sequences.
struct BatchPlan {
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;
  std::int64_t ranks = 0;
  std::int64_t accumulation_steps = 0;

  // The first of the `micro_batch` consecutive positions (see sample_order.h) that `rank` takes in
  // micro-batch `micro_step` of optimizer step `step`, all counted from 0. A step covers the
  // positions [step * global_batch, (step + 1) * global_batch), each once.
  std::int64_t first_position(std::int64_t step, std::int64_t micro_step, std::int64_t rank) const {
    return step * global_batch + (micro_step * ranks + rank) * micro_batch;
  }
};

// Throws UsageError, naming the three and the nearest global batches that divide, when
// `global_batch` is no multiple of micro_batch * ranks.
BatchPlan plan_batches(std::int64_t global_batch, std::int64_t micro_batch, std::int64_t ranks);

}  // namespace ringworld
