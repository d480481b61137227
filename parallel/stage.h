// A rank's part of the chain of units in pipeline parallelism (Huang et al., GPipe, NeurIPS 2019;
// Narayanan et al., SC 2021, section 2.2), and the schedule by which micro-batches go through it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "models/model.h"
#include "parallel/pipeline_schedule.h"

namespace ringworld {

struct PipelineOptions {
  std::string schedule = "1f1b";
  int chunks = 0;  // of each stage; 0: as is usual for the schedule
  // Layers of each part of the chain, first to last; empty: so that the largest part has as little
  // to compute as can be.
  std::vector<std::int64_t> layers = {};
};

// How the units of a whole model are divided into parts, first to last. A model is a first unit,
// layers and a last unit; the first unit is in the first part and the last one in the last. Throws
// UsageError, with all numbers, where there are more parts than layers or `layers` do not fit.
std::vector<Part> divide_chain(const Model& whole, int parts,
                               const std::vector<std::int64_t>& layers = {});

// The number of chunks that each stage has. Throws UsageError for an unknown schedule.
int chunks_of(const PipelineOptions& options);

class Stage {
 public:
  // The whole chain, of so many units, on one rank.
  explicit Stage(int units);
  // This rank's stage of a whole model, among the ranks of `pipeline`, which must outlive it.
  // Throws as divide_chain does.
  Stage(Communicator& pipeline, const PipelineOptions& options, const Model& whole);

  // Runs of units of the whole model: what Model::keep is to keep. Empty: all.
  const std::vector<Part>& kept() const { return kept_; }

  // A part of the chain that this rank has.
  struct Chunk {
    int first = 0;  // units of this rank's own chain
    int end = 0;
    bool is_first = true;  // of the whole chain
    bool is_last = true;
  };
  const std::vector<Chunk>& chunks() const { return chunks_; }
  bool is_whole() const { return pipeline_ == nullptr; }
  int rank() const { return is_whole() ? 0 : pipeline_->rank(); }
  int count() const { return is_whole() ? 1 : pipeline_->world_size(); }
  // Over the stages; none when the chain is whole.
  Communicator& pipeline() const { return *pipeline_; }

  // For so many micro-batches, with how many outputs a stage must be able to offer
  // (pipeline_proof.h). Throws UsageError where the schedule refuses them.
  struct Plan {
    PipelineSchedule schedule;
    PipelineChain chain;
    int offered;
  };
  const Plan& plan(int micro_batches) const;

  // What all stages send for a step of so many micro-batches, of activations and their gradients
  // of so many bytes.
  Bytes expected_traffic(int micro_batches, Bytes activations) const;

 private:
  Communicator* pipeline_ = nullptr;
  const PipelineKind* kind_;
  std::vector<Part> kept_;
  std::vector<Chunk> chunks_;
  mutable std::unique_ptr<Plan> plan_;  // of the last number asked for
};

}  // namespace ringworld
