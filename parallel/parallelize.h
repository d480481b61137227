// Everything that distributes a model over ranks, put on top of each other in one place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "models/model.h"
#include "parallel/mesh.h"
#include "parallel/stage.h"
#include "parallel/strategy.h"
#include "parallel/tensor_ranks.h"

namespace ringworld {

struct ParallelOptions {
  MeshShape mesh = {};
  bool sequence_parallel = false;
  PipelineOptions pipeline = {};
  StrategyOptions strategy = {};  // over the data axis
};

// One rank's part of a distributed model. Members that come later use those before them.
struct ParallelModel {
  std::unique_ptr<Mesh> mesh;  // null: a single process
  std::unique_ptr<TensorRanks> tensor;
  std::unique_ptr<Model> model;  // this rank's slice of its stage
  Stage stage{0};
  std::unique_ptr<Strategy> strategy;

  // What all ranks together send in one optimizer step of so many micro-batches of `tokens` (B, T),
  // by theory, under the labels "gradients", "parameters", "tensor" (but "tensor loss"), "pipeline"
  // and "model". The same on every rank; every rank calls.
  Bytes expected_traffic(int micro_batches, const Shape& tokens, std::int64_t checkpoint) const;
};

// What speaks against the combination on so many ranks, for any model; empty: nothing. Where the
// micro-batches of a step are known, whether the pipeline schedule takes so many, too.
std::string refusal(const ParallelOptions& options, int world_size, int micro_batches = 0);

// Throws UsageError for what refusal() refuses, and as make_model, divide_chain and make_strategy
// do, before anything is allocated for the model. Everything passed must outlive the result.
ParallelModel parallelize(const ModelOptions& model, DType dtype, const ParallelOptions& options,
                          Backend& backend, Communicator& world, std::uint64_t seed,
                          const Tiers& tiers = {});

// Builds what parallelize would on such a rank, as far as it takes neither memory nor other ranks:
// throws what that would throw for the model's dimensions.
void check_parallel_model(const ModelOptions& model, DType dtype, const ParallelOptions& options);

}  // namespace ringworld
