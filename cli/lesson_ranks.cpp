#include "cli/lesson_ranks.h"

#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "runtime/cpus.h"

namespace ringworld {
namespace {

// The others wait while rank 0 works through what needs one rank alone.
constexpr double patience = 300;  // seconds

ResourceOptions patient() {
  ResourceOptions options;
  options.timeout = patience;
  return options;
}

std::unique_ptr<Backend> backend_of_one(int ranks) {
  return make_cpu_backend(Device::create({}), default_threads(ranks));
}

}  // namespace

LessonRanks::LessonRanks(Transport& transport) {
  if (transport.world_size() > 1) {
    processes_ = std::make_unique<Rank>(patient(), transport);
  } else {
    alone_ = backend_of_one(1);
  }
}

std::string LessonRanks::description() const {
  return processes_ == nullptr
             ? "one process: its ranks are threads; under mpiexec they are processes"
             : fmt::format("{}. Where more are asked for, they are threads.",
                           processes_->description());
}

bool LessonRanks::on_processes(int count) const {
  return processes_ != nullptr && count <= processes_->communicator().world_size();
}

void LessonRanks::run(int count, const std::function<void(Communicator&)>& body) {
  if (on_processes(count)) {
    Communicator& world = processes_->communicator();
    if (world.rank() < count) {
      std::vector<int> ranks(static_cast<std::size_t>(count));
      std::iota(ranks.begin(), ranks.end(), 0);
      body(*world.subgroup(ranks));
    }
  } else if (prints()) {
    run_on_threads(count, [&](Transport& transport) {
      const auto backend = backend_of_one(count);
      Communicator communicator(transport, *backend);
      body(communicator);
    });
  }
}

void LessonRanks::check_same_everywhere(const std::string& settings) {
  if (processes_ != nullptr) {
    processes_->check_same_everywhere(settings);
  }
}

void LessonRanks::on_rank_0(const std::function<void()>& body) {
  if (processes_ == nullptr) {
    body();
  } else {
    processes_->on_rank_0(body);
  }
}

void LessonRanks::barrier() {
  if (processes_ != nullptr) {
    processes_->communicator().barrier("end of the lesson");
  }
}

}  // namespace ringworld
