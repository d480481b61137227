// What train writes down of a single step, where it is asked to: a dump of its tensors, and the
// device's memory over its time.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/options.h"
#include "training/memory_timeline.h"
#include "training/tensor_dump.h"
#include "training/trainer.h"
#include "training/training_state.h"

namespace ringworld {

class StepRecords {
 public:
  // Files that cannot be written are refused now. Every rank makes one; everything outlives it.
  StepRecords(const TrainOptions& options, const TrainingState& state, Backend& backend,
              Communicator& communicator);
  ~StepRecords();

  // What the trainer is to call in step `step`, from 1.
  StepHooks hooks(std::int64_t step);
  // After the last step, on rank 0: writes the timeline and returns what to say of both.
  std::string finish(const nlohmann::ordered_json& conditions);
  // When memory ran out in a step on this rank: writes the timeline as far as it went, if there is
  // one.
  void out_of_memory(const nlohmann::ordered_json& conditions);

 private:
  std::string finish_timeline(const nlohmann::ordered_json& conditions);
  class Marks;
  bool records_timeline(std::int64_t step) const;

  const TrainOptions& options_;
  const TrainingState& state_;
  Communicator& communicator_;
  std::unique_ptr<MemoryTimeline> timeline_;  // on rank 0, where one is asked for
  std::unique_ptr<TensorDump> dump_;          // until its step is over
  std::unique_ptr<Marks> observer_;
};

}  // namespace ringworld
