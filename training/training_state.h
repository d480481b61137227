// Everything that one rank trains: the model, the strategy that distributes it, the optimizer, and
// the tiers that hold what is offloaded. Built in one place, so that a run, its check against a
// single process and a dry run have the very same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "models/model.h"
#include "parallel/parallelize.h"
#include "training/optimizer.h"

namespace ringworld {

// What leaves the device: the optimizer's states; the master copies of what it updates, too; the
// shards of the parameters, too (ZeRO-Infinity).
enum class Offload : std::uint8_t { none, optimizer, master, parameters };
inline constexpr Offload all_offloads[] = {Offload::none, Offload::optimizer, Offload::master,
                                           Offload::parameters};
std::string_view name_of(Offload offload);

enum class OffloadTo : std::uint8_t { host, file };
inline constexpr OffloadTo all_offload_targets[] = {OffloadTo::host, OffloadTo::file};
std::string_view name_of(OffloadTo target);

struct OffloadSettings {
  Offload what = Offload::none;
  OffloadTo where = OffloadTo::host;
  std::string path = {};  // directory of the file; only for OffloadTo::file
  Bytes host_memory{0};   // of this rank; 0: no limit
  Bytes file_memory{0};   // of this rank; 0: no limit
  double host_link = 0;   // bytes per second between device and host, each way; 0: no limit
  double file_link = 0;   // the same between host and file
};

struct TrainingSetup {
  ModelOptions model = {};
  DType precision = DType::f32;
  std::optional<MeshShape> mesh = {};  // none: data parallelism over all ranks
  bool sequence_parallel = false;
  PipelineOptions pipeline = {};
  StrategyOptions strategy = {};
  OptimizerOptions optimizer = {};
  OffloadSettings offload = {};
  std::uint64_t seed = 1;
};

// How the setup distributes its model over so many ranks.
ParallelOptions parallel_options(const TrainingSetup& setup, int world_size);

// What speaks against the combination on so many ranks; empty: nothing. Everything that
// parallelize refuses, too. `micro_batches` of a step and rank, where they are known.
std::string refusal(const TrainingSetup& setup, int world_size, std::int64_t micro_batches = 0);

class TrainingState {
 public:
  // Makes a backend on host memory, of the kind that the device has.
  using MakeBackend = std::function<std::unique_ptr<Backend>(std::shared_ptr<Device>)>;

  // Throws UsageError for what refusal() refuses, before anything is allocated. Backend and
  // communicator outlive the state. `dry_run`: the backends hold no data.
  TrainingState(const TrainingSetup& setup, Backend& backend, Communicator& communicator,
                const MakeBackend& make_host_backend, bool dry_run = false);
  // A single process, with everything on its device: the control.
  TrainingState(const TrainingSetup& setup, Backend& backend);

  Model& model() const { return *parallel_.model; }
  Strategy& strategy() const { return *parallel_.strategy; }
  const Stage& stage() const { return parallel_.stage; }
  const Mesh* mesh() const { return parallel_.mesh.get(); }  // null: a single process
  const ParallelModel& parallel() const { return parallel_; }
  Optimizer& optimizer() const { return *optimizer_; }
  const HostTier* host() const { return host_.get(); }
  const FileTier* file() const { return file_.get(); }
  // What has moved between the tiers since the start.
  OffloadTraffic offload_traffic() const;

 private:
  std::unique_ptr<HostTier> host_;  // null: nothing is offloaded
  std::unique_ptr<FileTier> file_;
  ParallelModel parallel_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace ringworld
