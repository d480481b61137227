#include "parallel/pass.h"

#include <algorithm>
#include <utility>

namespace ringworld {

std::vector<UnitGroup> unit_groups(const Stage& stage, const Stage::Chunk& chunk,
                                   std::int64_t checkpoint) {
  const int units = chunk.end - chunk.first;
  const int size =
      checkpoint > 0 ? static_cast<int>(std::min<std::int64_t>(checkpoint, units)) : units;
  std::vector<UnitGroup> groups;
  for (int first = chunk.first; first < chunk.end; first += size) {
    const int end = std::min(first + size, chunk.end);
    const bool is_next_backward = stage.is_whole() && end == chunk.end;
    groups.push_back({.first = first, .end = end, .keeps = checkpoint == 0 || is_next_backward});
  }
  return groups;
}

Pass::Pass(const PassContext& context, const Stage::Chunk& chunk,
           std::shared_ptr<const Batch> batch, int micro_batch)
    : of_(context),
      chunk_(chunk),
      batch_(std::move(batch)),
      micro_batch_(micro_batch),
      groups_(unit_groups(context.stage, chunk, context.options.checkpoint)) {}

Tensor Pass::forward(Tensor x) {
  if (of_.options.observer != nullptr) {
    of_.options.observer->before_micro_batch(*batch_, micro_batch_, at(chunk_.first), false);
  }
  for (UnitGroup& group : groups_) {
    if (!group.keeps) {
      group.input = x;
    }
    for (int unit = group.first; unit < group.end; ++unit) {
      Saved dropped;
      of_.strategy.before_forward(unit);
      x = at(unit).forward(of_.backend, *batch_, x, group.keeps ? saved_ : dropped);
      of_.strategy.after_forward(unit);
      if (of_.options.observer != nullptr) {
        of_.options.observer->after_forward(at(unit), x);
      }
    }
  }
  return x;
}

void Pass::recompute(UnitGroup& group) {
  Tensor x = std::move(group.input);
  for (int unit = group.first; unit < group.end; ++unit) {
    of_.strategy.before_recompute(unit);
    x = at(unit).forward(of_.backend, *batch_, x, saved_);
  }
}

Tensor Pass::backward(Tensor dy) {
  if (of_.options.observer != nullptr && !of_.stage.is_whole()) {
    of_.options.observer->before_micro_batch(*batch_, micro_batch_, at(chunk_.end - 1), true);
  }
  for (; !groups_.empty(); groups_.pop_back()) {
    UnitGroup& group = groups_.back();
    if (!group.keeps) {
      recompute(group);
    }
    for (int unit = group.end - 1; unit >= group.first; --unit) {
      of_.strategy.before_backward(unit, micro_batch_);
      dy = at(unit).backward(of_.backend, *batch_, dy, saved_);
      if (of_.options.observer != nullptr) {
        of_.options.observer->after_backward(at(unit), dy);
      }
      of_.strategy.after_backward_input(unit);
      if (!saved_.puts_off_weights()) {
        of_.strategy.after_backward(unit, micro_batch_);
      }
    }
  }
  return dy;
}

Tensor Pass::backward_input(Tensor dy) {
  saved_.put_off_weights();
  return backward(std::move(dy));
}

void Pass::backward_weight() {
  saved_.add_weight_gradients(of_.backend);
  for (int unit = chunk_.end - 1; unit >= chunk_.first; --unit) {
    of_.strategy.after_backward(unit, micro_batch_);
  }
}

}  // namespace ringworld
