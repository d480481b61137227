// The ranks of the lesson's experiments: the processes that mpiexec started, as far as there are so
// many, otherwise threads of the first one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cli/rank.h"
#include "collectives/communicator.h"
#include "runtime/backend.h"
#include "runtime/transport.h"

namespace ringworld {

class LessonRanks {
 public:
  explicit LessonRanks(Transport& transport);

  bool prints() const { return processes_ == nullptr || processes_->prints(); }
  std::string description() const;
  // Of this process.
  Backend& backend() { return processes_ == nullptr ? *alone_ : processes_->backend(); }

  // Whether so many ranks are processes; else they are threads of rank 0's.
  bool on_processes(int count) const;
  std::string_view where(int count) const { return on_processes(count) ? "processes" : "threads"; }
  // Runs the body on ranks 0 to `count` - 1, and returns on each process when its own are done.
  // Every process calls.
  void run(int count, const std::function<void(Communicator&)>& body);

  // Throws UsageError unless every process was started with the same settings.
  void check_same_everywhere(const std::string& settings);
  // On rank 0 alone; an Error of it is thrown by every process.
  void on_rank_0(const std::function<void()>& body);
  // Until the last process is here.
  void barrier();

 private:
  std::unique_ptr<Rank> processes_;  // none: this one is alone
  std::unique_ptr<Backend> alone_;
};

}  // namespace ringworld
