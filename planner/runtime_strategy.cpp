#include "planner/runtime_strategy.h"

#include <algorithm>

#include "collectives/schedule.h"

namespace ringworld {
namespace {

std::int64_t norm_elements(const Transformer& m) {
  return (m.norm == NormKind::layer ? 2 : 1) * m.width;
}

// Of one layer, on one of the tensor ranks.
std::int64_t block_elements(const Transformer& m, std::int64_t tensor) {
  const LayerParameters layer = layer_parameters(m, 0);
  return (layer.attention_split + layer.mlp_split) / tensor + layer.attention_whole +
         layer.mlp_whole + layer.norms;
}

}  // namespace

StrategyBooks::StrategyBooks(const Transformer& m, const Layout& l,
                             const std::vector<UnitKind>& units, Books& books)
    : layout_(l), books_(books), last_(static_cast<int>(units.size()) - 1) {
  const std::int64_t table =
      chunk_range(m.vocabulary, static_cast<int>(l.tensor), 0).count * m.width;
  const std::int64_t block = block_elements(m, l.tensor);
  const bool has_embedding = units.front() == UnitKind::embedding;
  const bool has_head = units.back() == UnitKind::head;
  for (int unit = 0; unit <= last_; ++unit) {
    switch (units[static_cast<std::size_t>(unit)]) {
      case UnitKind::embedding:
        add((m.learned_positions ? m.context * m.width : 0) + (m.tied_head ? 0 : table), unit,
            unit);
        break;
      case UnitKind::block:
        add(block, unit, unit);
        break;
      case UnitKind::head:
        add(norm_elements(m) + (m.tied_head ? 0 : table), unit, unit);
        break;
    }
  }
  if (m.tied_head && (has_embedding || has_head)) {  // from its first user here to its last
    add(table, has_embedding ? 0 : last_, has_head ? last_ : 0);
  }
}

void StrategyBooks::add(std::int64_t elements, int first_user, int last_user) {
  if (elements > 0) {
    const auto ranks = static_cast<int>(layout_.sharding_ranks());
    groups_.push_back({elements, chunk_range(elements, ranks, 0).count, first_user, last_user});
  }
}

std::int64_t StrategyBooks::sum(std::int64_t Group::*what) const {
  std::int64_t all = 0;
  for (const Group& group : groups_) {
    all += group.*what;
  }
  return all;
}

// One unit is gathered ahead, and one more fetched where parameters are offloaded.
void StrategyBooks::use(int unit, int direction) {
  if (!gathers_values()) {
    return;
  }
  const std::int64_t value = size_of(layout_.precision).value;
  const auto each = [&](int ahead, auto start) {
    for (int i = 0; i <= ahead; ++i) {
      for (Group& group : groups_) {
        if (group.is_used_by(unit + i * direction)) {
          start(group);
        }
      }
    }
  };
  if (layout_.offload == PlannedOffload::parameters) {
    each(2, [&](Group& group) {
      if (!group.values && !group.fetched) {
        group.fetched = books_.hold(Category::gathered, group.own * value);
      }
    });
  }
  each(1, [&](Group& group) {
    if (!group.values) {
      group.values = books_.hold(Category::gathered, group.elements * value);
    }
  });
  each(0, [](Group& group) { group.fetched = {}; });
}

void StrategyBooks::after_forward(int unit) {
  for (Group& group : groups_) {
    if (group.last_user == unit) {
      group.fetched = group.values = {};
    }
  }
}

void StrategyBooks::before_backward(int unit) {
  use(unit, -1);
  // Of the micro-batch before, whose gradients are in the same place.
  if (unit == last_ || std::ranges::any_of(reducing_, [unit](const Group* group) {
        return group->is_used_by(unit);
      })) {
    finish_reductions();
  }
  for (Group& group : groups_) {
    if (gathers_gradients() && group.is_used_by(unit) && !group.gradients) {
      group.gradients = books_.hold(
          Category::gathered, group.elements * size_of(gradient_dtype(layout_.precision)).value);
    }
  }
}

void StrategyBooks::after_backward(int unit) {
  finish_reductions();
  for (Group& group : groups_) {
    if (group.first_user == unit) {
      group.fetched = group.values = {};
      reducing_.push_back(&group);
    }
  }
}

void StrategyBooks::finish_reductions() {
  for (Group* group : reducing_) {
    group->gradients = {};
  }
  reducing_.clear();
}

}  // namespace ringworld
