// The mesh: which part of the work a rank has, along three axes.
//
//   dp  data parallel: every coordinate has batches of its own
//   pp  pipeline parallel: every coordinate has a run of the model's layers
//   tp  tensor parallel: every coordinate has a slice of each layer
//
// Ranks of one tensor group are neighbours, since they exchange the most and should be on one
// machine; then come the stages of one pipeline, then data parallelism:
// rank = (data * pipeline stages + stage) * tensor ranks + tensor.
// (Narayanan et al., SC 2021, section 3.)
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace ringworld {

struct MeshShape {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;

  int ranks() const { return data * pipeline * tensor; }
  int model_ranks() const { return pipeline * tensor; }  // that hold one copy of the model
  bool operator==(const MeshShape&) const = default;
};

std::string to_string(const MeshShape& shape);  // "dp=2,pp=2,tp=1"

// "dp=2,tp=4", in any order; an axis that is left out is 1. Throws UsageError for an unknown axis,
// one that is there twice, and a size that is no number from 1 on.
MeshShape parse_mesh(std::string_view text);

// Throws UsageError that names every factor, and a mesh that would do, unless the product of the
// sizes is the number of ranks.
void check_mesh(const MeshShape& shape, int world_size);

// Every mesh of so many ranks, data parallelism alone first.
std::vector<MeshShape> meshes_of(int world_size);

// Where a rank is.
struct MeshPlace {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;
};
MeshPlace place_in(const MeshShape& shape, int rank);

// A rank's communicators, one for each axis: the ranks that differ from this one in that
// coordinate alone.
class Mesh {
 public:
  // Data parallelism alone, over all of the communicator's ranks.
  explicit Mesh(Communicator& world) : Mesh(world, {.data = world.world_size()}) {}
  // Throws as check_mesh does. `world` must outlive the mesh.
  Mesh(Communicator& world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  const MeshPlace& place() const { return place_; }
  bool is_first_stage() const { return place_.pipeline == 0; }
  bool is_last_stage() const { return place_.pipeline + 1 == shape_.pipeline; }

  Communicator& world() const { return world_; }
  Communicator& data() const { return *data_; }
  Communicator& pipeline() const { return *pipeline_; }
  Communicator& tensor() const { return *tensor_; }
  // Ranks that hold one copy of the model together: tensor groups of all stages.
  Communicator& model() const { return *model_; }
  // First and last stage, where this rank is on one of them; they share tied weights.
  Communicator* ends() const { return ends_.get(); }

 private:
  Communicator& world_;
  const MeshShape shape_;
  const MeshPlace place_;
  std::unique_ptr<Communicator> own_data_;  // null: the world
  Communicator* data_;
  std::unique_ptr<Communicator> pipeline_;
  std::unique_ptr<Communicator> tensor_;
  std::unique_ptr<Communicator> model_;
  std::unique_ptr<Communicator> ends_;
};

}  // namespace ringworld
