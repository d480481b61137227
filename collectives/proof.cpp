#include "collectives/proof.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "collectives/simulation.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

// --- Closed forms --------------------------------------------------------------------------------

// How often each data chunk is sent, over all ranks; in all_to_all, what is for rank d counts as
// chunk d.
std::vector<std::int64_t> times_sent(Operation operation, const std::vector<Schedule>& schedules) {
  const int data = schedules[0].data_chunks();
  const int chunks = operation == Operation::all_to_all ? data / 2 : data;
  std::vector<std::int64_t> times(static_cast<std::size_t>(chunks));
  for (const Schedule& schedule : schedules) {
    for (const Step& step : schedule.steps()) {
      for (const Action& action : step.actions) {
        if (action.verb == Verb::send) {
          const int chunk =
              action.chunk < data ? action.chunk : schedule.scratch()[action.chunk - data];
          ++times[static_cast<std::size_t>(chunk % chunks)];
        }
      }
    }
  }
  return times;
}

// For counts that cut into equal chunks; when all chunks are sent equally often, for any count.
void check_closed_forms(const Algorithm& algorithm, const std::vector<Schedule>& schedules,
                        std::int64_t steps) {
  const auto ranks = static_cast<std::int64_t>(schedules.size());
  if (steps != algorithm.steps.value(ranks, 0)) {
    throw Refutation{
        fmt::format("{} steps, the closed form says {}", steps, algorithm.steps.value(ranks, 0))};
  }
  const std::vector<std::int64_t> times = times_sent(algorithm.operation, schedules);
  const auto chunks = static_cast<std::int64_t>(times.size());
  const bool any_count = std::ranges::count(times, times[0]) == chunks && !algorithm.equal_chunks;
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, ranks + 1, std::int64_t{1009},
                                   chunks, 1009 * chunks, (std::int64_t{1} << 32) * chunks}) {
    if (!any_count && count % chunks != 0) {
      continue;
    }
    std::int64_t sent = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      sent += times[static_cast<std::size_t>(chunk)] *
              chunk_range(count, static_cast<int>(chunks), chunk).count;
    }
    const std::int64_t expected = algorithm.elements_sent.value(ranks, count);
    if (sent != expected) {
      throw Refutation{fmt::format("{} elements sent for a buffer of {}, the closed form says {}",
                                   sent, count, expected)};
    }
  }
}

// --- Roots ---------------------------------------------------------------------------------------

// Whether `schedule` of rank v + root is that of rank v with root 0, everything moved `root` ranks
// on: what is right for one is then right for the other.
bool is_turned(const Schedule& schedule, const Schedule& original, int root, int ranks,
               bool turns_chunks) {
  const int data = original.data_chunks();
  const auto turned = [&](int chunk) {
    return turns_chunks && chunk < data ? (chunk + root) % ranks : chunk;
  };
  const auto same_message = [&](const Action& a, const Action& b) {
    return a.verb == b.verb && a.peer == (b.peer + root) % ranks && a.chunk == turned(b.chunk);
  };
  const auto same_step = [&](const Step& a, const Step& b) {
    return a.local.empty() && b.local.empty() &&
           std::ranges::equal(a.actions, b.actions, same_message);
  };
  return schedule.chunks() == data && original.chunks() == data &&
         std::ranges::equal(schedule.steps(), original.steps(), same_step);
}

bool are_turned(const std::vector<Schedule>& schedules, const std::vector<Schedule>& originals,
                int root, bool turns_chunks) {
  const int ranks = static_cast<int>(schedules.size());
  for (int v = 0; v < ranks; ++v) {
    if (!is_turned(schedules[(v + root) % ranks], originals[v], root, ranks, turns_chunks)) {
      return false;
    }
  }
  return true;
}

void check_ranks(std::size_t ranks) {
  if (ranks < 1 || ranks > max_proved_ranks) {
    throw std::invalid_argument(
        fmt::format("refute: 1 to {} ranks, asked for {}", max_proved_ranks, ranks));
  }
}

}  // namespace

std::vector<Schedule> emit_all(const Algorithm& algorithm, int ranks, int root) {
  if (algorithm.library) {
    throw UsageError(fmt::format(
        "{} {} is the MPI library's own call, which has no schedule to look at; choose another "
        "algorithm",
        algorithm.name, name_of(algorithm.operation)));
  }
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < ranks; ++rank) {
    schedules.push_back(algorithm.emit(rank, ranks, root));
  }
  return schedules;
}

std::optional<std::string> refute(Operation operation, const std::vector<Schedule>& schedules,
                                  const ProofOptions& options) {
  check_ranks(schedules.size());
  try {
    Simulation(operation, schedules, options).run();
    return std::nullopt;
  } catch (const Refutation& refutation) {
    return refutation.text;
  }
}

std::optional<std::string> refute(const Algorithm& algorithm, int ranks) {
  check_ranks(static_cast<std::size_t>(ranks));
  if (algorithm.library || !algorithm.refuses(ranks).empty()) {
    return std::nullopt;
  }
  const int roots = has_root(algorithm.operation) ? ranks : 1;
  const bool turns_chunks = demanded_chunks(algorithm.operation, ranks) != 0;
  const std::vector<Schedule> at_root_0 = emit_all(algorithm, ranks, 0);
  for (int root = 0; root < roots; ++root) {
    const std::vector<Schedule> schedules = emit_all(algorithm, ranks, root);
    if (root > 0 && are_turned(schedules, at_root_0, root, turns_chunks)) {
      continue;
    }
    try {
      Simulation simulation(algorithm.operation, schedules,
                            {.root = root,
                             .equal_chunks = algorithm.equal_chunks,
                             .rank_order = algorithm.rank_order});
      simulation.run();
      check_closed_forms(algorithm, schedules, simulation.steps());
    } catch (const Refutation& refutation) {
      return fmt::format("{} {} over {} ranks, root {}: {}", algorithm.name,
                         name_of(algorithm.operation), ranks, root, refutation.text);
    }
  }
  return std::nullopt;
}

std::vector<Contents> trace(Operation operation, const std::vector<Schedule>& schedules,
                            const ProofOptions& options) {
  check_ranks(schedules.size());
  Simulation simulation(operation, schedules, options, /*keeps_history=*/true);
  try {
    simulation.run();
  } catch (const Refutation& refutation) {
    throw std::invalid_argument(refutation.text);
  }
  return simulation.history();
}

}  // namespace ringworld
