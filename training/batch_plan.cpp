#include "training/batch_plan.h"

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {

BatchPlan plan_batches(std::int64_t global_batch, std::int64_t micro_batch, std::int64_t ranks) {
  const auto positive = [](const char* what, std::int64_t value) {
    if (value < 1) {
      throw UsageError(fmt::format("{} is {}, it must be 1 or more", what, value));
    }
  };
  positive("the global batch", global_batch);
  positive("the micro-batch", micro_batch);
  positive("the number of ranks", ranks);
  const std::int64_t unit = micro_batch * ranks;
  if (global_batch % unit != 0) {
    const std::int64_t below = global_batch / unit * unit;
    const std::string nearest =
        below > 0 ? fmt::format("{} and {}", below, below + unit) : fmt::format("{}", unit);
    throw UsageError(
        fmt::format("--global-batch: {} does not divide into micro-batches of {} on {} ranks ({} "
                    "sequences at "
                    "a time); nearest that does: {}",
                    global_batch, micro_batch, ranks, unit, nearest));
  }
  return {global_batch, micro_batch, ranks, global_batch / unit};
}

}  // namespace ringworld
