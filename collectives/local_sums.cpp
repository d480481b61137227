#include "collectives/local_sums.h"

#include <algorithm>
#include <map>

namespace ringworld {
namespace {

// Whether what the chunk holds after the local actions of `step` is looked at: data always is.
bool is_needed(const Schedule& schedule, std::size_t step, int chunk) {
  if (chunk < schedule.data_chunks()) {
    return true;
  }
  const std::vector<Step>& steps = schedule.steps();
  for (std::size_t later = step; later < steps.size(); ++later) {
    if (later > step && std::ranges::any_of(steps[later].local, [&](const LocalAction& action) {
          return action.chunk == chunk || action.source == chunk;
        })) {
      return true;
    }
    if (std::ranges::any_of(steps[later].actions,
                            [&](const Action& action) { return action.chunk == chunk; })) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<std::vector<LocalSum>> local_sums(const Schedule& schedule, std::size_t step) {
  std::map<int, std::vector<int>> written;  // terms, by chunk
  const auto content = [&](int chunk) {
    const auto found = written.find(chunk);
    return found == written.end() ? std::vector{chunk} : found->second;
  };
  for (const LocalAction& action : schedule.steps()[step].local) {
    std::vector<int> source = content(action.source);
    if (action.verb == Verb::copy) {
      written[action.chunk] = std::move(source);
      continue;
    }
    if (source.size() > 1) {
      return std::nullopt;
    }
    std::vector<int> terms = content(action.chunk);
    terms.push_back(source.front());
    written[action.chunk] = std::move(terms);
  }

  std::vector<LocalSum> sums;
  int workplace = -1;
  for (const auto& [chunk, terms] : written) {
    if (is_needed(schedule, step, chunk)) {
      sums.push_back({.chunk = chunk, .terms = terms});
    } else {
      workplace = chunk;
    }
  }
  for (LocalSum& sum : sums) {
    if (workplace >= 0 &&
        schedule.scratch()[static_cast<std::size_t>(workplace - schedule.data_chunks())] ==
            sum.chunk) {
      sum.workplace = workplace;
    }
    for (std::size_t i = 0; i < sum.terms.size(); ++i) {
      const int term = sum.terms[i];
      const bool own = term == sum.chunk;
      if (term == workplace || (own && i > 1 && sum.workplace < 0) ||
          (!own &&
           std::ranges::any_of(sums, [&](const LocalSum& other) { return other.chunk == term; }))) {
        return std::nullopt;
      }
    }
  }
  return sums;
}

}  // namespace ringworld
