// What train and verify can be told about meshes, tensor and pipeline parallelism.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/option_set.h"
#include "training/training_state.h"

namespace ringworld {

// One way to distribute a model, strategies of the data axis aside.
struct ParallelLayout {
  std::optional<MeshShape> mesh = {};  // none: data parallelism over all ranks
  bool sequence_parallel = false;
  PipelineOptions pipeline = {};

  void apply(TrainingSetup& setup) const {
    setup.mesh = mesh;
    setup.sequence_parallel = sequence_parallel;
    setup.pipeline = pipeline;
  }
};
// "dp=2,pp=2,tp=1 zb-h1", "dp=1,pp=1,tp=4 sp"; "dp" where there is no mesh.
std::string to_string(const ParallelLayout& layout);

// The layouts to verify.
struct LayoutLists {
  bool every_mesh = false;             // of the world; else those of the list
  std::vector<MeshShape> meshes = {};  // none: data parallelism over all ranks
  std::vector<bool> sequence_parallel = {};
  std::vector<std::string> schedules = {};
  PipelineOptions pipeline = {};  // the schedule aside
};
// Every combination, data parallelism alone first. An option that a mesh has no use for is there
// once.
std::vector<ParallelLayout> layouts_of(const LayoutLists& lists, int world_size);

void declare_parallel(OptionSet& set, TrainingSetup& setup);
void declare_parallel(OptionSet& set, LayoutLists& lists);

}  // namespace ringworld
