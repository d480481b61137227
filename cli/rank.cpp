#include "cli/rank.h"

#include <iostream>

#include <fmt/format.h>

#include "runtime/cpus.h"
#include "runtime/error.h"
#include "runtime/random.h"
#include "training/broadcast_text.h"

namespace ringworld {
namespace {

std::unique_ptr<Backend> backend_of_rank(const ResourceOptions& options, int local_ranks,
                                         const std::shared_ptr<SharedArena>& arena) {
  const int threads = options.threads > 0 ? options.threads : default_threads(local_ranks);
  return make_cpu_backend(
      Device::create({.budget = options.budget()},
                     arena == nullptr ? make_host_memory() : make_arena_memory(arena)),
      threads);
}

std::string counted(int count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

CommunicatorOptions communicator_options(const ResourceOptions& options,
                                         const Selection& selection) {
  return {.timeout = options.timeout_milliseconds(),
          .algorithm = options.algorithm,
          .selection = &selection,
          .reproducible = options.reproducible};
}

Selection read_selection(const ResourceOptions& options) {
  return options.tuning.empty() ? Selection::built_in() : Selection::read(options.tuning);
}

Rank::Rank(const ResourceOptions& options, Transport& transport)
    : explains_(options.explain),
      algorithm_(options.algorithm),
      local_ranks_(transport.local_ranks()),
      library_(transport.description()),
      shared_(share_memory(options, transport)),
      backend_(backend_of_rank(options, local_ranks_, arena_)),
      selection_(read_selection(options)),
      communicator_(shared_ == nullptr ? transport : *shared_, *backend_,
                    communicator_options(options, selection_)) {}

std::unique_ptr<Backend> Rank::make_backend(std::shared_ptr<Device> device) const {
  return make_cpu_backend(std::move(device), backend_->threads());
}

void Rank::explain() const {
  if (!explains_ || communicator_.rank() != 0) {
    return;
  }
  std::string text = "\nalgorithms chosen:\n";
  if (algorithm_ != "auto") {
    text += fmt::format("  {} for every operation that has it, as asked\n", algorithm_);
  }
  for (const std::string& line : communicator_.explanations()) {
    text += fmt::format("  {}\n", line);
  }
  std::cerr << text << std::flush;
}

std::unique_ptr<Transport> Rank::share_memory(const ResourceOptions& options,
                                              Transport& transport) {
  if (transport.world_size() % options.nodes != 0) {
    throw UsageError(fmt::format("--nodes: {} nodes do not divide {} ranks", options.nodes,
                                 transport.world_size()));
  }
  transport.set_timeout(options.timeout_milliseconds());
  if (!same_on_all_ranks(transport, 1000 * options.nodes + static_cast<int>(options.transport))) {
    throw UsageError(
        "the ranks were started with different --transport or --nodes; give every rank the same "
        "command line");
  }
  if (options.transport == TransportChoice::mpi || transport.world_size() == 1) {
    return nullptr;
  }
  std::string why_not;
  arena_ = SharedArena::create(shared_front(transport.local_ranks()), why_not);
  auto shared = make_shared_transport(transport, arena_, options.nodes, why_not);
  if (shared == nullptr) {
    arena_.reset();
    if (options.transport == TransportChoice::shared) {
      throw CommunicationError(fmt::format(
          "--transport shared: the ranks of this machine cannot read each other's memory ({}); "
          "use --transport mpi, or auto",
          why_not));
    }
    if (transport.rank() == 0) {
      fmt::print(stderr,
                 "ringworld: the ranks of this machine cannot read each other's memory ({}); "
                 "messages go through MPI instead, which is slower\n",
                 why_not);
    }
  }
  return shared;
}

std::string Rank::description() const {
  return fmt::format("{} on {}, {} each, {}", counted(communicator_.world_size(), "rank"),
                     counted(allowed_cpus(), "CPU"), counted(backend_->threads(), "thread"),
                     communicator_.description());
}

nlohmann::ordered_json Rank::conditions() const {
  return {{"version", RINGWORLD_VERSION},
          {"ranks", communicator_.world_size()},
          {"ranks_on_this_machine", local_ranks_},
          {"cpus_allowed", allowed_cpus()},
          {"threads_per_rank", backend_->threads()},
          {"backend", backend_->name()},
          {"mpi_library", library_},
          {"transport", shared_ == nullptr ? "mpi" : shared_->name()}};
}

void Rank::check_same_everywhere(const std::string& settings) {
  const auto mine = static_cast<std::int64_t>(stream_of(settings));
  const auto least = communicator_.all_reduce_value(mine, ReduceOp::min, "settings");
  const auto most = communicator_.all_reduce_value(mine, ReduceOp::max, "settings");
  if (least != most) {
    throw UsageError(
        "the ranks were started with different options or different data; give every rank the same "
        "command line, --config file and files");
  }
}

void Rank::on_rank_0(const std::function<void()>& body) {
  std::string message;
  std::int64_t code = 0;
  if (communicator_.rank() == 0) {
    try {
      body();
    } catch (const Error& error) {
      message = error.what();
      code = static_cast<std::int64_t>(error.code());
    }
  }
  code = communicator_.all_reduce_value(code, ReduceOp::max, "outcome on rank 0");
  if (code != 0) {
    throw Error(static_cast<ExitCode>(code), broadcast_text(communicator_, message, 0));
  }
}

}  // namespace ringworld
