#include "parallel/sharded.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "collectives/schedule.h"
#include "parallel/sum_over_ranks.h"

namespace ringworld {
namespace {

// This rank's neighbours, `size` of them, in one replica.
std::unique_ptr<Communicator> replica(Communicator& world, int size) {
  if (size == 0 || size == world.world_size()) {
    return nullptr;
  }
  std::vector<int> ranks;
  const int first = world.rank() / size * size;
  for (int rank = first; rank < first + size; ++rank) {
    ranks.push_back(rank);
  }
  return world.subgroup(ranks);
}

// The ranks whose shards are this rank's.
std::unique_ptr<Communicator> replicas(Communicator& world, int size) {
  if (size == 0 || size == world.world_size()) {
    return nullptr;
  }
  std::vector<int> ranks;
  for (int rank = world.rank() % size; rank < world.world_size(); rank += size) {
    ranks.push_back(rank);
  }
  return world.subgroup(ranks);
}

}  // namespace

// --- Groups and their memory ---------------------------------------------------------------------

Sharded::Sharded(ShardingDegree degree, const StrategyOptions& options, Model& model,
                 Backend& backend, Communicator& communicator, std::uint64_t seed,
                 const Tiers& tiers)
    : degree_(degree),
      name_(options.name),
      reduces_once_(!reduces_every_micro_batch(options)),
      reshards_after_forward_(options.reshard_after_forward),
      prefetch_(options.prefetch),
      tiers_(options.offload_parameters ? tiers : Tiers{}),
      model_(model),
      backend_(backend),
      own_shard_ranks_(replica(communicator, options.shard_group)),
      replicas_(replicas(communicator, options.shard_group)),
      shard_ranks_(own_shard_ranks_ == nullptr ? communicator : *own_shard_ranks_) {
  make_groups();
  make_memory();
  make_shards();
  make_values(seed);
}

void Sharded::make_groups() {
  std::unordered_map<const Parameter*, std::pair<int, int>> users;  // first and last
  const auto& units = model_.units();
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
    for (const Parameter* p : units[static_cast<std::size_t>(unit)]->parameters()) {
      users.try_emplace(p, unit, unit).first->second.second = unit;
    }
  }
  // Weights that another pipeline stage shares are in groups of their own, too: cut alike there.
  std::map<std::tuple<int, int, int>, std::vector<Parameter*>> by_users;
  for (int i = 0; i < static_cast<int>(model_.parameters().size()); ++i) {
    Parameter* p = model_.parameters()[static_cast<std::size_t>(i)].get();
    const auto found = users.find(p);
    const auto [first, last] = found == users.end() ? std::pair(-1, -1) : found->second;
    by_users[{first, last, p->gradient_sum == GradientSum::end_stages ? i : -1}].push_back(p);
  }
  groups_.reserve(by_users.size());
  used_by_.resize(units.size());
  for (auto& [ends, parameters] : by_users) {
    const auto [first, last, shared] = ends;
    Group& group = groups_.emplace_back(Group{
        .label = first < 0                     ? "unused"
                 : first == last && shared < 0 ? units[static_cast<std::size_t>(first)]->name()
                                               : parameters.front()->name,
        .parameters = parameters,
        .first_user = first,
        .last_user = last});
    for (const Parameter* p : parameters) {
      group.elements += p->shape.elements();
      group_of_[p] = &group;
    }
    for (int rank = 0; rank < shard_ranks_.world_size(); ++rank) {
      group.counts.push_back(chunk_range(group.elements, shard_ranks_.world_size(), rank).count);
    }
    group.first_own =
        chunk_range(group.elements, shard_ranks_.world_size(), shard_ranks_.rank()).first;
    for (int unit = std::max(first, 0); unit <= last; ++unit) {
      const auto& used = units[static_cast<std::size_t>(unit)]->parameters();
      if (std::ranges::any_of(used, [&](const Parameter* p) { return group_of_[p] == &group; })) {
        used_by_[static_cast<std::size_t>(unit)].push_back(&group);
      }
    }
  }
}

void Sharded::make_memory() {
  const DType dtype = model_.dtype();
  const DType gradient = gradient_dtype(dtype);
  for (Group& group : groups_) {
    if (tiers_.file != nullptr) {
      group.value_block = tiers_.file->reserve(own(group) * size_of(dtype), Category::parameters);
      group.value_piece = tiers_.file->staging(dtype, own(group));
    } else if (offloads()) {
      group.value_piece =
          tiers_.host->backend().empty(dtype, Shape{own(group)}, Category::parameters);
    } else if (shards_parameters()) {
      group.value_piece = backend_.empty(dtype, Shape{own(group)}, Category::parameters);
    } else {
      group.values = backend_.empty(dtype, Shape{group.elements}, Category::parameters);
      group.value_piece = group.values.slice(group.first_own, own(group));
      bind(group, &Parameter::value, group.values);
    }
    if (reduces_once_) {
      group.gradients = backend_.empty(gradient, Shape{group.elements}, Category::gradients);
      group.gradient_piece = group.gradients.slice(group.first_own, own(group));
      bind(group, &Parameter::gradient, group.gradients);
    } else {
      group.gradient_piece = backend_.empty(gradient, Shape{own(group)}, Category::gradients);
    }
  }
}

void Sharded::bind(const Group& group, Tensor Parameter::*tensor, const Tensor& whole) {
  std::int64_t first = 0;
  for (Parameter* p : group.parameters) {
    p->*tensor =
        whole.defined() ? whole.slice(first, p->shape.elements()).view(p->shape) : Tensor();
    first += p->shape.elements();
  }
}

void Sharded::make_shards() {
  for (const Group& group : groups_) {
    std::int64_t first = 0;  // of the parameter, in the group
    for (const Parameter* p : group.parameters) {
      const std::int64_t elements = p->shape.elements();
      const std::int64_t begin = std::max(first, group.first_own);
      const std::int64_t end = std::min(first + elements, group.first_own + own(group));
      if (begin < end) {
        const Range in_piece{begin - group.first_own, end - begin};
        shards_.push_back({.parameter = p,
                           .first_element = begin - first,
                           .value = group.value_piece.slice(in_piece.first, in_piece.count),
                           .gradient = group.gradient_piece.slice(in_piece.first, in_piece.count)});
        places_.push_back({&group, in_piece});
      }
      first += elements;
    }
  }
}

void Sharded::point_shards_to_values() {
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const auto& [group, range] = places_[i];
    shards_[i].value = group->value_piece.defined()
                           ? group->value_piece.slice(range.first, range.count)
                           : Tensor();
  }
}

void Sharded::make_values(std::uint64_t seed) {
  Backend& backend = offloads() ? tiers_.host->backend() : backend_;
  for (const Shard& shard : shards_) {
    initialize(backend, *shard.parameter, shard.value, shard.first_element, seed);
  }
  for (Group& group : groups_) {
    if (replicas_ != nullptr) {
      const Tensor piece = piece_on_device(group);
      replicas_->broadcast(piece, 0, "initial " + group.label).wait();
      if (offloads()) {
        tiers_.host->copy_down(group.value_piece, backend_, piece).wait();
      }
    }
    if (!shards_parameters()) {
      shard_ranks_
          .all_gather(group.values, group.value_piece, group.counts, "initial " + group.label)
          .wait();
    }
  }
}

// --- A step --------------------------------------------------------------------------------------

void Sharded::begin_step(int micro_batches) {
  micro_batches_ = micro_batches;
  for (Group& group : groups_) {
    backend_.fill(reduces_once_ ? group.gradients : group.gradient_piece, 0);
    group.adds = false;
  }
}

void Sharded::before_forward(int unit) {
  use(unit, 1);
}

void Sharded::before_recompute(int unit) {
  use(unit, -1);
}

// Waits until the unit's values are there, with those of the next units in this direction on their
// way.
void Sharded::use(int unit, int direction) {
  if (!shards_parameters()) {
    return;
  }
  const auto each = [&](int ahead, void (Sharded::*start)(Group&)) {
    const int units = static_cast<int>(used_by_.size());
    for (int next = unit; next >= 0 && next < units && std::abs(next - unit) <= ahead;
         next += direction) {
      for (Group* group : used_by_[static_cast<std::size_t>(next)]) {
        (this->*start)(*group);
      }
    }
  };
  if (offloads()) {
    each(prefetch_ + 1, &Sharded::start_fetch);
  }
  each(prefetch_, &Sharded::start_gather);
  for (Group* group : used_by_[static_cast<std::size_t>(unit)]) {
    group->gather.wait();
    group->fetched = {};
  }
}

void Sharded::start_fetch(Group& group) {
  if (group.values.defined() || group.fetched.defined()) {
    return;
  }
  finish_storing();
  group.fetched = backend_.empty(model_.dtype(), Shape{own(group)}, Category::gathered);
  group.fetch = tiers_.file != nullptr
                    ? tiers_.file->fetch(backend_, group.fetched, group.value_block)
                    : tiers_.host->copy_up(backend_, group.fetched, group.value_piece);
}

void Sharded::start_gather(Group& group) {
  if (group.values.defined()) {
    return;
  }
  group.values = backend_.empty(model_.dtype(), Shape{group.elements}, Category::gathered);
  bind(group, &Parameter::value, group.values);
  group.fetch.wait();
  group.fetch = {};
  group.gather =
      shard_ranks_.all_gather(group.values, offloads() ? group.fetched : group.value_piece,
                              group.counts, "parameters " + group.label);
}

void Sharded::release_values(Group& group) {
  group.gather.wait();
  group.gather = {};
  group.fetch.wait();
  group.fetch = {};
  group.fetched = {};
  group.values = {};
  bind(group, &Parameter::value, group.values);
}

void Sharded::after_forward(int unit) {
  if (!shards_parameters() || !reshards_after_forward_) {
    return;
  }
  for (Group* group : used_by_[static_cast<std::size_t>(unit)]) {
    if (group->last_user == unit) {
      release_values(*group);
    }
  }
}

void Sharded::after_evaluation() {
  if (shards_parameters()) {
    for (Group& group : groups_) {
      release_values(group);
    }
  }
}

void Sharded::before_backward(int unit, int /*micro_batch*/) {
  use(unit, -1);
  const std::vector<Group*>& used = used_by_[static_cast<std::size_t>(unit)];
  // Of the micro-batch before, whose gradients are in the same place.
  if (unit + 1 == static_cast<int>(used_by_.size()) ||
      std::ranges::any_of(reducing_, [&](const Group* group) {
        return std::ranges::find(used, group) != used.end();
      })) {
    finish_reductions();
  }
  for (Group* group : used_by_[static_cast<std::size_t>(unit)]) {
    if (!group->gradients.defined()) {
      group->gradients = backend_.zeros(gradient_dtype(model_.dtype()), Shape{group->elements},
                                        Category::gathered);
      bind(*group, &Parameter::gradient, group->gradients);
    }
  }
}

void Sharded::after_backward_input(int unit) {
  if (!shards_parameters()) {
    return;
  }
  for (Group* group : used_by_[static_cast<std::size_t>(unit)]) {
    if (group->first_user == unit) {
      release_values(*group);
    }
  }
}

void Sharded::after_backward(int unit, int micro_batch) {
  const bool reduces = !reduces_once_ || micro_batch + 1 == micro_batches_;
  if (reduces) {
    finish_reductions();  // of the unit before: gradients of two units at most are whole
  }
  for (Group* group : used_by_[static_cast<std::size_t>(unit)]) {
    if (reduces && group->first_user == unit) {
      group->reduction = shard_ranks_.reduce_scatter(
          group->gradients.slice(group->first_own, own(*group)), group->gradients, group->counts,
          ReduceOp::sum, "gradients " + group->label);
      reducing_.push_back(group);
    }
  }
}

void Sharded::finish_reductions() {
  for (Group* group : reducing_) {
    group->reduction.wait();
    group->reduction = {};
    if (reduces_once_) {
      continue;  // the piece is a view of the whole
    }
    const Tensor sum = group->gradients.slice(group->first_own, own(*group));
    if (group->adds) {
      backend_.add(group->gradient_piece, group->gradient_piece, sum);
    } else {
      backend_.copy(group->gradient_piece, sum);
    }
    group->adds = true;
    group->gradients = {};
    bind(*group, &Parameter::gradient, group->gradients);
  }
  reducing_.clear();
}

void Sharded::finish_gradients() {
  finish_reductions();
  if (replicas_ == nullptr) {
    return;
  }
  std::vector<Work> works;
  for (Group& group : groups_) {
    if (group.first_user >= 0) {
      works.push_back(replicas_->all_reduce(group.gradient_piece, group.gradient_piece,
                                            ReduceOp::sum, "gradients " + group.label));
    }
  }
  for (Work& work : works) {
    work.wait();
  }
}

// The optimizer changes values in host memory, so those in the file come there.
void Sharded::begin_update() {
  if (tiers_.file == nullptr || groups_.front().value_piece.defined()) {
    return;
  }
  std::vector<Work> works;
  for (Group& group : groups_) {
    group.value_piece = tiers_.file->staging(model_.dtype(), own(group));
    works.push_back(tiers_.file->read(group.value_piece, group.value_block));
  }
  for (Work& work : works) {
    work.wait();
  }
  point_shards_to_values();
}

void Sharded::finish_storing() {
  if (tiers_.file == nullptr || !groups_.front().value_piece.defined()) {
    return;
  }
  std::vector<Work> works;
  for (Group& group : groups_) {
    works.push_back(tiers_.file->write(group.value_block, group.value_piece));
  }
  for (Work& work : works) {
    work.wait();
  }
  for (Group& group : groups_) {
    group.value_piece = {};
  }
  point_shards_to_values();
}

void Sharded::finish_update() {
  finish_storing();
  if (shards_parameters()) {
    return;
  }
  std::vector<Work> works;
  for (Group& group : groups_) {
    works.push_back(shard_ranks_.all_gather(group.values, group.value_piece, group.counts,
                                            "parameters " + group.label));
  }
  for (Work& work : works) {
    work.wait();
  }
}

WideSum Sharded::gradient_squares() {
  return sum_over_ranks(shard_ranks_, squares_of_counted(backend_, shards_), "gradient norm");
}

// --- What others want to know --------------------------------------------------------------------

Tensor Sharded::assemble(const Parameter& parameter, const Group& group, const Tensor& piece) {
  const Tensor whole = backend_.empty(piece.dtype(), Shape{group.elements}, Category::workspace);
  shard_ranks_.all_gather(whole, piece, group.counts, "whole " + group.label).wait();
  std::int64_t first = 0;
  for (const Parameter* p : group.parameters) {
    if (p == &parameter) {
      break;
    }
    first += p->shape.elements();
  }
  return whole.slice(first, parameter.shape.elements()).view(parameter.shape);
}

Tensor Sharded::piece_on_device(const Group& group) {
  if (!offloads()) {
    return group.value_piece;
  }
  Tensor piece = backend_.empty(model_.dtype(), Shape{own(group)}, Category::workspace);
  (group.value_piece.defined() ? tiers_.host->copy_up(backend_, piece, group.value_piece)
                               : tiers_.file->fetch(backend_, piece, group.value_block))
      .wait();
  return piece;
}

Tensor Sharded::full_value(const Parameter& parameter) {
  if (!shards_parameters()) {
    return parameter.value;
  }
  const Group& group = *group_of_.at(&parameter);
  return assemble(parameter, group, piece_on_device(group));
}

Tensor Sharded::full_gradient(const Parameter& parameter) {
  const Group& group = *group_of_.at(&parameter);
  return assemble(parameter, group, group.gradient_piece);
}

Bytes Sharded::expected_traffic(int micro_batches) const {
  const DType dtype = model_.dtype();
  const DType gradient = gradient_dtype(dtype);
  const int replica_count = replicas_ == nullptr ? 1 : replicas_->world_size();
  const int reductions = reduces_once_ ? 1 : micro_batches;
  const int gathers = shards_parameters() ? micro_batches * (reshards_after_forward_ ? 2 : 1) : 1;
  Bytes expected;
  for (const Group& group : groups_) {
    const bool used = group.first_user >= 0;
    const bool equal = group.elements % shard_ranks_.world_size() == 0;
    const auto of = [&](Operation operation, DType type) {
      return replica_count * shard_ranks_.expected_traffic(operation, group.elements, type, equal);
    };
    if (used) {
      expected += reductions * of(Operation::reduce_scatter, gradient);
    }
    if (used || !shards_parameters()) {
      expected += gathers * of(Operation::all_gather, dtype);
    }
    if (used && replicas_ != nullptr) {
      for (const std::int64_t count : group.counts) {
        expected += replicas_->expected_traffic(Operation::all_reduce, count, gradient, true);
      }
    }
  }
  return expected;
}

Copies Sharded::expected_copies() const {
  const int replica_count = replicas_ == nullptr ? 1 : replicas_->world_size();
  const int ranks = replica_count * shard_ranks_.world_size();
  return {.parameters = shards_parameters() ? replica_count : ranks,
          .gradients = reduces_once_ ? ranks : replica_count,
          .optimizer = replica_count};
}

}  // namespace ringworld
