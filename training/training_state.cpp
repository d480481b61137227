#include "training/training_state.h"

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

bool offloads(const TrainingSetup& setup) {
  return setup.offload.what != Offload::none;
}

// A value of the gradient's dtype is its own master: offloaded as a parameter, it needs no copy.
OffloadLevel optimizer_level(const TrainingSetup& setup) {
  switch (setup.offload.what) {
    case Offload::none:
      return OffloadLevel::none;
    case Offload::optimizer:
      return OffloadLevel::optimizer;
    case Offload::master:
      return OffloadLevel::master;
    case Offload::parameters:
      break;
  }
  return gradient_dtype(setup.precision) == setup.precision ? OffloadLevel::optimizer
                                                            : OffloadLevel::master;
}

}  // namespace

ParallelOptions parallel_options(const TrainingSetup& setup, int world_size) {
  ParallelOptions options{.mesh = setup.mesh.value_or(MeshShape{.data = world_size}),
                          .sequence_parallel = setup.sequence_parallel,
                          .pipeline = setup.pipeline,
                          .strategy = setup.strategy};
  options.strategy.offload_parameters = setup.offload.what == Offload::parameters;
  return options;
}

std::string_view name_of(Offload offload) {
  static constexpr std::string_view names[] = {"none", "optimizer", "master", "parameters"};
  return names[static_cast<std::size_t>(offload)];
}

std::string_view name_of(OffloadTo target) {
  return target == OffloadTo::host ? "host" : "file";
}

std::string refusal(const TrainingSetup& setup, int world_size, std::int64_t micro_batches) {
  const OffloadSettings& offload = setup.offload;
  const bool to_file = offloads(setup) && offload.where == OffloadTo::file;
  if (to_file && offload.path.empty()) {
    return "--offload-to file needs a directory for the file; add --offload-path DIR";
  }
  const auto only_with = [](std::string_view option, std::string_view needed) {
    return fmt::format("{} has no meaning without {}", option, needed);
  };
  if (!to_file) {
    if (!offload.path.empty()) {
      return only_with("--offload-path", "--offload and --offload-to file");
    }
    if (offload.file_memory.value > 0) {
      return only_with("--file-memory", "--offload and --offload-to file");
    }
    if (offload.file_link > 0) {
      return only_with("--file-link", "--offload and --offload-to file");
    }
  }
  if (!offloads(setup)) {
    if (offload.where == OffloadTo::file) {
      return only_with("--offload-to", "--offload optimizer, master or parameters");
    }
    if (offload.host_memory.value > 0) {
      return only_with("--host-memory", "--offload");
    }
    if (offload.host_link > 0) {
      return only_with("--host-link", "--offload");
    }
  }
  if (offload.what == Offload::optimizer && UpdateRule(setup.optimizer).states() == 0) {
    return "--offload optimizer has nothing to offload: SGD without momentum keeps no state; use "
           "--offload master, or --momentum above 0";
  }
  const ParallelOptions parallel = parallel_options(setup, world_size);
  std::string why = refusal(parallel, world_size, static_cast<int>(micro_batches));
  if (why.empty()) {
    try {
      check_parallel_model(setup.model, setup.precision, parallel);
    } catch (const UsageError& error) {
      why = error.what();
    }
  }
  return why;
}

TrainingState::TrainingState(const TrainingSetup& setup, Backend& backend,
                             Communicator& communicator, const MakeBackend& make_host_backend,
                             bool dry_run) {
  if (const std::string why = refusal(setup, communicator.world_size()); !why.empty()) {
    throw UsageError(why);
  }
  const OffloadSettings& offload = setup.offload;
  if (offloads(setup)) {
    host_ = std::make_unique<HostTier>(
        make_host_backend(dry_run ? make_host_device(offload.host_memory, make_no_memory())
                                  : make_host_device(offload.host_memory)),
        HostTierOptions{.link_bytes_per_second = offload.host_link, .dry_run = dry_run});
    if (offload.where == OffloadTo::file) {
      file_ =
          std::make_unique<FileTier>(FileTierOptions{.directory = offload.path,
                                                     .budget = offload.file_memory,
                                                     .link_bytes_per_second = offload.file_link},
                                     *host_);
    }
  }
  parallel_ =
      parallelize(setup.model, setup.precision, parallel_options(setup, communicator.world_size()),
                  backend, communicator, setup.seed, {host_.get(), file_.get()});
  optimizer_ =
      make_optimizer(setup.optimizer, strategy().shards(), backend,
                     {.level = optimizer_level(setup), .host = host_.get(), .file = file_.get()});
}

TrainingState::TrainingState(const TrainingSetup& setup, Backend& backend) {
  parallel_.model = make_model(setup.model, setup.precision);
  parallel_.stage = Stage(static_cast<int>(model().units().size()));
  parallel_.strategy = make_single_process(model(), backend, setup.seed);
  optimizer_ = make_optimizer(setup.optimizer, strategy().shards(), backend);
}

OffloadTraffic TrainingState::offload_traffic() const {
  OffloadTraffic all;
  if (host_ != nullptr) {
    const LinkTraffic link = host_->traffic();
    all.to_host = link.down;
    all.to_device = link.up;
    all.seconds_waited = link.seconds_waited;
  }
  if (file_ != nullptr) {
    const LinkTraffic link = file_->traffic();
    all.file_read = link.up;
    all.file_written = link.down;
    all.seconds_waited += link.seconds_waited;
  }
  return all;
}

}  // namespace ringworld
