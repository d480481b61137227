// What ringworld plan memory found, and how it is told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/plan_setup.h"
#include "cli/plan_verify.h"
#include "planner/conventions.h"
#include "planner/memory_advice.h"
#include "planner/runtime_memory.h"

namespace ringworld {

// Beside a budget.
struct PlanAdvice {
  std::vector<MemoryAdvice> changes = {};        // where it does not fit
  std::optional<MemoryAdvice> as_laid_out = {};  // the fewest GPUs
  std::optional<MemoryAdvice> frugal = {};       // and with all that saves memory
};

struct PlanMemoryResult {
  PlanSetup setup;
  Accounting accounting;
  std::int64_t gpus_per_node = 0;  // 0: not said
  MemoryPlan plan = {};
  PlanAdvice advice = {};
  std::optional<RuntimeMemory> runtime = {};  // accounting ringworld
  std::string command = {};                   // that runs it here
  std::vector<PlanVerification> verifications = {};
  std::optional<ConventionReport> convention = {};
  std::optional<std::int64_t> lesson_gpus = {};  // that states need, by the lesson

  // Of the fullest GPU, in the accounting asked for.
  Bytes device() const {
    return runtime ? runtime->device.total_peak : plan.worst().device.total();
  }
};

// At most 100 columns wide.
std::string text_of(const PlanMemoryResult& result);

}  // namespace ringworld
