#include "parallel/stage.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/pipeline_proof.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

// What there is to compute for a token, in multiplications: the elements of all weights that are
// matrices. Looking up a row of a table is nothing beside that.
std::vector<std::int64_t> layer_costs(const Model& whole) {
  const auto& units = whole.units();
  const auto cost = [&](std::size_t unit) {
    std::int64_t sum = 0;
    for (const Parameter* p : units[unit]->parameters()) {
      sum += unit > 0 && p->whole_shape.axes() > 1 ? p->whole_shape.elements() : 0;
    }
    return sum;
  };
  std::vector<std::int64_t> costs;
  for (std::size_t unit = 1; unit + 1 < units.size(); ++unit) {
    costs.push_back(cost(unit));
  }
  if (!costs.empty()) {
    costs.back() += cost(units.size() - 1);
  }
  return costs;
}

// Divides the layers so that the most expensive part is as cheap as can be and, of such divisions,
// the parts are as alike as can be: their costs have the least sum of squares.
std::vector<std::int64_t> balanced(const std::vector<std::int64_t>& costs, int parts) {
  const auto layers = costs.size();
  std::vector<double> before(layers + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  constexpr double impossible = std::numeric_limits<double>::infinity();

  // Divides with no part above `limit`. What a division is to minimise is a fold of its parts'
  // costs. The result's parts are empty when there is no division.
  struct Division {
    double value;
    std::vector<std::int64_t> parts;
  };
  const auto divide = [&](double limit, auto fold) {
    const auto rows = static_cast<std::size_t>(parts) + 1;
    // Of the last n layers in p parts.
    std::vector best(rows, std::vector<double>(layers + 1, impossible));
    std::vector taken(rows, std::vector<std::size_t>(layers + 1, 0));
    best[0][0] = 0;
    for (std::size_t p = 1; p < rows; ++p) {
      for (std::size_t left = p; left <= layers; ++left) {
        for (std::size_t take = 1; take + p - 1 <= left; ++take) {
          const std::size_t first = layers - left;
          const double cost = before[first + take] - before[first];
          const double value = cost <= limit ? fold(best[p - 1][left - take], cost) : impossible;
          if (value <= best[p][left] && value < impossible) {
            best[p][left] = value;
            taken[p][left] = take;
          }
        }
      }
    }
    Division division{best.back()[layers], {}};
    std::size_t left = layers;
    for (std::size_t p = rows - 1; p > 0; --p) {
      division.parts.push_back(static_cast<std::int64_t>(taken[p][left]));
      left -= taken[p][left];
    }
    return division;
  };
  const double limit =
      divide(impossible, [](double rest, double cost) { return std::max(rest, cost); }).value;
  return divide(limit, [](double rest, double cost) { return rest + cost * cost; }).parts;
}

}  // namespace

std::vector<Part> divide_chain(const Model& whole, int parts,
                               const std::vector<std::int64_t>& layers) {
  const auto units = static_cast<std::int64_t>(whole.units().size());
  if (parts == 1 && layers.empty()) {
    return {{0, units}};
  }
  const std::vector<std::int64_t> costs = layer_costs(whole);
  const auto count = static_cast<std::int64_t>(costs.size());
  if (parts > count) {
    throw UsageError(fmt::format(
        "{} has {} layers, too few for {} pipeline stages (chunks counted); use at most {}",
        whole.name(), count, parts, count));
  }
  std::vector<std::int64_t> division = layers;
  if (division.empty()) {
    division = balanced(costs, parts);
  } else if (static_cast<int>(division.size()) != parts ||
             std::accumulate(division.begin(), division.end(), std::int64_t{0}) != count ||
             std::ranges::min(division) < 1) {
    throw UsageError(fmt::format(
        "--stages {}: {} numbers with the sum {}; {} has {} layers for {} stages (chunks counted), "
        "each of which needs one at least",
        fmt::join(division, ","), division.size(),
        std::accumulate(division.begin(), division.end(), std::int64_t{0}), whole.name(), count,
        parts));
  }
  std::vector<Part> result;
  std::int64_t first = 0;
  for (int part = 0; part < parts; ++part) {
    const std::int64_t end = part + 1 == parts ? units
                                               : first + division[static_cast<std::size_t>(part)] +
                                                     (part == 0 ? 1 : 0);  // the first unit
    result.push_back({first, end - first});
    first = end;
  }
  return result;
}

int chunks_of(const PipelineOptions& options) {
  const PipelineKind& kind = find_pipeline(options.schedule);
  return options.chunks > 0 ? options.chunks : kind.usual_chunks;
}

Stage::Stage(int units) : kind_(&find_pipeline("1f1b")), chunks_{{.first = 0, .end = units}} {}

Stage::Stage(Communicator& pipeline, const PipelineOptions& options, const Model& whole)
    : pipeline_(&pipeline), kind_(&find_pipeline(options.schedule)) {
  const PipelineShape shape{.stages = pipeline.world_size(), .chunks = chunks_of(options)};
  const std::vector<Part> parts = divide_chain(whole, shape.parts(), options.layers);
  const std::vector<std::vector<int>> placed = looped_parts(shape);
  int first = 0;
  for (const int part : placed[static_cast<std::size_t>(pipeline.rank())]) {
    const Part& units = parts[static_cast<std::size_t>(part)];
    kept_.push_back(units);
    chunks_.push_back({.first = first,
                       .end = first + static_cast<int>(units.count),
                       .is_first = part == 0,
                       .is_last = part + 1 == shape.parts()});
    first = chunks_.back().end;
  }
}

const Stage::Plan& Stage::plan(int micro_batches) const {
  if (plan_ == nullptr || plan_->schedule.shape.micro_batches != micro_batches) {
    PipelineSchedule schedule = emit_pipeline(*kind_, {.stages = count(),
                                                       .micro_batches = micro_batches,
                                                       .chunks = static_cast<int>(chunks_.size())});
    const int offered = needs_of(schedule).offered;
    PipelineChain chain(schedule);
    plan_ = std::make_unique<Plan>(Plan{std::move(schedule), std::move(chain), offered});
  }
  return *plan_;
}

Bytes Stage::expected_traffic(int micro_batches, Bytes activations) const {
  const int parts = count() * static_cast<int>(chunks_.size());
  return count() == 1 ? Bytes(0) : 2 * micro_batches * (parts - 1) * activations;
}

}  // namespace ringworld
