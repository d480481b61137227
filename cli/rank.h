// What every subcommand that computes sets up first: one virtual GPU and its communicator.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/options.h"
#include "collectives/communicator.h"
#include "collectives/selection.h"
#include "runtime/backend.h"
#include "runtime/transport.h"

namespace ringworld {

// What `options` say of a communicator and of the choice of its algorithms, which outlives it.
CommunicatorOptions communicator_options(const ResourceOptions& options,
                                         const Selection& selection);
Selection read_selection(const ResourceOptions& options);

class Rank {
 public:
  Rank(const ResourceOptions& options, Transport& transport);

  Backend& backend() { return *backend_; }
  // One like it on another device.
  std::unique_ptr<Backend> make_backend(std::shared_ptr<Device> device) const;
  Communicator& communicator() { return communicator_; }
  bool prints() const { return communicator_.rank() == 0; }

  // "4 ranks on 2 CPUs, 1 thread each, MPICH 4.0.2"
  std::string description() const;
  // The same for machines: ranks, CPUs allowed, threads, MPI library.
  nlohmann::ordered_json conditions() const;

  // On rank 0, when asked for: which algorithms were chosen so far, and why.
  void explain() const;

  // Throws UsageError unless every rank was started with the same settings, which are a text.
  void check_same_everywhere(const std::string& settings);
  // Runs the body on rank 0 alone; when it throws an Error, every rank throws the same.
  void on_rank_0(const std::function<void()>& body);

 private:
  // Sets arena_, too. Returns nullptr where messages go through MPI.
  std::unique_ptr<Transport> share_memory(const ResourceOptions& options, Transport& transport);

  const bool explains_;
  const std::string algorithm_;  // as asked
  int local_ranks_;
  const std::string library_;
  std::shared_ptr<SharedArena> arena_ = nullptr;  // holds the device's memory, if it is shared
  std::unique_ptr<Transport> shared_;
  std::unique_ptr<Backend> backend_;
  Selection selection_;
  Communicator communicator_;
};

}  // namespace ringworld
