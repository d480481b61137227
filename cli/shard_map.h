// Which slice of which tensor lives on which rank: read from the objects that train, every rank's
// built as for a dry run, so that the map is what a run has and not what it should have.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/schedule.h"
#include "models/model.h"
#include "parallel/mesh.h"
#include "training/training_state.h"

namespace ringworld {

// What there is of each tensor. The optimizer's is AdamW's moments or a velocity, and in 16 bits
// the master copy.
enum class ModelState : std::uint8_t { parameters, gradients, optimizer };
inline constexpr ModelState all_model_states[] = {ModelState::parameters, ModelState::gradients,
                                                  ModelState::optimizer};
inline constexpr std::size_t model_state_count = std::size(all_model_states);
std::string_view name_of(ModelState state);  // "parameters", ...

// One value for each state.
template <typename T>
struct OfStates {
  std::array<T, model_state_count> values = {};
  T& operator[](ModelState state) { return values[static_cast<std::size_t>(state)]; }
  const T& operator[](ModelState state) const { return values[static_cast<std::size_t>(state)]; }
};

// A rank's part of a tensor.
struct RankPart {
  int rank = 0;
  // Without memory. Its parts say what tensor parallelism leaves this rank, and for_each_run where
  // its elements stand in the whole tensor.
  Parameter parameter;
  OfStates<Range> held;  // elements of that part, between steps; none: count 0
};

struct MappedTensor {
  std::string name;
  Shape shape;                       // of the whole
  std::vector<RankPart> parts = {};  // of the ranks that have something to do with it
};

struct ShardMap {
  MeshShape mesh;
  std::vector<MappedTensor> tensors = {};     // in the model's order
  OfStates<Bytes> element_bytes = {};         // of one element of each state
  std::vector<OfStates<Bytes>> charged = {};  // by rank: what its device's ledger says
};

// Throws UsageError for what refusal() refuses. Nothing may be offloaded.
ShardMap map_shards(const TrainingSetup& setup, int world_size);

}  // namespace ringworld
