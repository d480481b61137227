// Rules from measurements.
#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>

#include "collectives/selection.h"

namespace ringworld {
namespace {

// How much slower than the fastest a rule's algorithm may be where that saves a rule: what two runs
// of a benchmark differ in.
constexpr double tolerance = 1.03;

using Times = std::map<std::string, double>;  // by algorithm, at one size
using Sizes = std::map<Bytes, Times>;

double fastest(const Times& times) {
  return std::ranges::min_element(times, {}, &Times::value_type::second)->second;
}

// Sizes that one algorithm serves.
struct Stretch {
  Bytes first;
  Bytes last;
  // What is fast enough at all of them, with how much slower it is than the fastest: the logarithm
  // of the factor, summed over the sizes.
  std::map<std::string, double> candidates;
};

// As few as possible: each goes on for as long as there is an algorithm that is fast enough at all
// of its sizes.
std::vector<Stretch> stretches(const Sizes& sizes) {
  std::vector<Stretch> result;
  for (const auto& [bytes, times] : sizes) {
    const double best = fastest(times);
    std::map<std::string, double> good;
    std::map<std::string, double> good_all_along;
    for (const auto& [algorithm, seconds] : times) {
      if (seconds > tolerance * best) {
        continue;
      }
      good[algorithm] = std::log(seconds / best);
      if (!result.empty() && result.back().candidates.contains(algorithm)) {
        good_all_along[algorithm] = result.back().candidates[algorithm] + good[algorithm];
      }
    }
    if (good_all_along.empty()) {
      result.push_back({bytes, bytes, good});
    } else {
      result.back().last = bytes;
      result.back().candidates = good_all_along;
    }
  }
  return result;
}

Bytes geometric_mean(Bytes a, Bytes b) {
  return Bytes(static_cast<std::int64_t>(std::sqrt(static_cast<double>(a.value)) *
                                         std::sqrt(static_cast<double>(b.value))));
}

}  // namespace

Selection tuned(std::span<const Measurement> measurements, const Selection& base) {
  std::map<std::tuple<Operation, std::string, int>, Sizes> groups;
  for (const Measurement& m : measurements) {
    if (!(m.seconds > 0) || !std::isfinite(m.seconds)) {
      throw std::invalid_argument(fmt::format("tuned: {} {} of {} took {} s", m.algorithm,
                                              name_of(m.operation), to_string(m.bytes), m.seconds));
    }
    Times& times = groups[{m.operation, m.transport, m.ranks}][m.bytes];
    const auto [known, fresh] = times.emplace(m.algorithm, m.seconds);
    known->second = std::min(known->second, m.seconds);
  }

  std::vector<SelectionRule> rules;
  for (const auto& [group, sizes] : groups) {
    const auto& [operation, transport, ranks] = group;
    const std::vector<Stretch> all = stretches(sizes);
    for (std::size_t i = 0; i < all.size(); ++i) {
      SelectionRule& rule = rules.emplace_back(SelectionRule{
          .operation = operation,
          .transport = transport,
          .ranks_from = ranks,
          .ranks_to = ranks,
          .algorithm = std::ranges::min_element(all[i].candidates, {},
                                                &decltype(Stretch::candidates)::value_type::second)
                           ->first});
      if (i + 1 < all.size()) {
        rule.up_to = geometric_mean(all[i].last, all[i + 1].first);
      }
    }
  }
  for (const SelectionRule& rule : base.rules()) {
    if (rule.ranks_from != rule.ranks_to ||
        !groups.contains({rule.operation, rule.transport, rule.ranks_from})) {
      rules.push_back(rule);
    }
  }
  return Selection(std::move(rules), "the measurements");
}

}  // namespace ringworld
