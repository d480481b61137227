#include "planner/runtime_memory.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "collectives/schedule.h"
#include "planner/runtime_books.h"
#include "planner/runtime_units.h"
#include "runtime/error.h"
#include "runtime/transport.h"

namespace ringworld {
namespace {

// A group of parameters that Sharded moves together (parallel/sharded.h).
struct Group {
  std::int64_t elements;
  std::int64_t own;  // of rank 0
  int first_user;
  int last_user;
  bool values = false;     // whole, gathered
  bool gradients = false;  // whole, gathered
  bool fetched = false;    // this rank's piece, on its way from a tier
};

// The strategy's hooks around units, as far as they take memory.
class StrategyBooks {
 public:
  StrategyBooks(const Transformer& m, const Layout& l, Books& books)
      : l_(l),
        books_(books),
        value_(size_of(l.precision).value),
        gradient_(size_of(gradient_dtype(l.precision)).value),
        last_(static_cast<int>(m.layers) + 1) {
    const auto add = [&](std::int64_t elements, int first, int last) {
      const auto ranks = static_cast<int>(l.sharding_ranks());
      groups_.push_back({elements, chunk_range(elements, ranks, 0).count, first, last});
    };
    add(m.context * m.width, 0, 0);
    for (int layer = 0; layer < m.layers; ++layer) {
      add(layer_parameters(m, layer).total(), layer + 1, layer + 1);
    }
    add(2 * m.width, last_, last_);
    add(m.vocabulary * m.width, 0, last_);  // the tied table
  }

  std::int64_t elements() const { return sum(&Group::elements); }
  std::int64_t own() const { return sum(&Group::own); }

  void before_forward(int unit) { use(unit, 1); }
  void before_recompute(int unit) { use(unit, -1); }
  void after_forward(int unit) {
    for (Group* group : users_of(unit)) {
      if (gathers_values() && group->last_user == unit) {
        release(*group);
      }
    }
  }
  void before_backward(int unit) {
    use(unit, -1);
    if (unit == last_) {
      finish_reductions();
    }
    for (Group* group : users_of(unit)) {
      if (gathers_gradients() && !group->gradients) {
        group->gradients = true;
        books_.take(Category::gathered, group->elements * gradient_);
      }
    }
  }
  void after_backward(int unit) {
    finish_reductions();
    for (Group* group : users_of(unit)) {
      if (group->first_user != unit) {
        continue;
      }
      if (gathers_values()) {
        release(*group);
      }
      reducing_.push_back(group);
    }
  }
  void finish_reductions() {
    for (Group* group : reducing_) {
      if (group->gradients) {
        group->gradients = false;
        books_.give(Category::gathered, group->elements * gradient_);
      }
    }
    reducing_.clear();
  }

 private:
  std::int64_t sum(std::int64_t Group::*what) const {
    std::int64_t all = 0;
    for (const Group& group : groups_) {
      all += group.*what;
    }
    return all;
  }
  bool gathers_values() const { return l_.sharding == Sharding::zero3; }
  bool gathers_gradients() const { return l_.sharding >= Sharding::zero2; }

  std::vector<Group*> users_of(int unit) {
    std::vector<Group*> users;
    for (Group& group : groups_) {
      if (group.first_user == unit || group.last_user == unit) {
        users.push_back(&group);
      }
    }
    return users;
  }

  // One unit is gathered ahead, and one more fetched where parameters are offloaded.
  void use(int unit, int direction) {
    if (!gathers_values()) {
      return;
    }
    const auto each = [&](int ahead, auto start) {
      for (int i = 0; i <= ahead; ++i) {
        for (Group* group : users_of(unit + i * direction)) {
          start(*group);
        }
      }
    };
    if (l_.offload == PlannedOffload::parameters) {
      each(2, [this](Group& group) {
        if (!group.values && !group.fetched) {
          group.fetched = true;
          books_.take(Category::gathered, group.own * value_);
        }
      });
    }
    each(1, [this](Group& group) {
      if (!group.values) {
        group.values = true;
        books_.take(Category::gathered, group.elements * value_);
      }
    });
    for (Group* group : users_of(unit)) {
      drop_fetched(*group);
    }
  }
  void drop_fetched(Group& group) {
    if (group.fetched) {
      group.fetched = false;
      books_.give(Category::gathered, group.own * value_);
    }
  }
  void release(Group& group) {
    drop_fetched(group);
    if (group.values) {
      group.values = false;
      books_.give(Category::gathered, group.elements * value_);
    }
  }

  const Layout& l_;
  Books& books_;
  const std::int64_t value_;
  const std::int64_t gradient_;
  const int last_;  // unit: the head
  std::vector<Group> groups_;
  std::vector<Group*> reducing_;
};

// One micro-batch over the chain of units (parallel/micro_batch.cpp): embedding, blocks, head.
// With full recomputation only a unit's input is kept, but the head, whose backward follows at
// once, keeps all.
void run_micro_batch(int units, bool recomputes, StrategyBooks& strategy, RuntimeUnits& model) {
  const auto keeps = [&](int unit) { return !recomputes || unit + 1 == units; };
  for (int unit = 0; unit < units; ++unit) {
    strategy.before_forward(unit);
    model.forward(unit);
    strategy.after_forward(unit);
    if (!keeps(unit)) {
      model.drop_saved(unit);
    }
  }
  model.take_loss();
  for (int unit = units - 1; unit >= 0; --unit) {
    if (!keeps(unit)) {
      strategy.before_recompute(unit);
      model.forward(unit);
      model.drop_output();
    }
    strategy.before_backward(unit);
    model.backward(unit);
    strategy.after_backward(unit);
  }
}

// What stays between steps.
void take_states(const Layout& l, std::int64_t elements, std::int64_t own, int states, Books& books,
                 RuntimeMemory& result) {
  const std::int64_t value = size_of(l.precision).value;
  const std::int64_t wide = size_of(gradient_dtype(l.precision)).value;
  const bool mixed = value != wide;
  Ledger& tier = l.offload_to_file ? result.file : result.host;
  const auto add = [&](Category category, std::int64_t bytes, bool offloaded) {
    if (!offloaded) {
      books.take(category, bytes);
      return;
    }
    tier.held[static_cast<std::size_t>(category)] += Bytes(bytes);
    tier.total_held += Bytes(bytes);
  };
  const std::int64_t updated = l.sharding >= Sharding::zero1 ? own : elements;
  const std::int64_t kept = l.sharding == Sharding::zero3 ? own : elements;
  add(Category::parameters, kept * value, l.offload == PlannedOffload::parameters);
  add(Category::gradients, (l.sharding >= Sharding::zero2 ? own : elements) * wide, false);
  add(Category::optimizer, updated * wide * states, l.offload >= PlannedOffload::optimizer);
  // At level master there is one on the tier even where the value is its own.
  const bool copies = mixed || l.offload == PlannedOffload::master;
  add(Category::optimizer, copies ? updated * wide : 0, l.offload >= PlannedOffload::master);
}

}  // namespace

std::string runtime_refusal(const Transformer& m, const Layout& l) {
  if (m.norm != NormKind::layer || m.gated_mlp || m.experts || m.latent || !m.tied_head ||
      !m.learned_positions || !m.linear_bias || m.kv_heads != m.heads ||
      m.head_size * m.heads != m.width) {
    return fmt::format("{} is not a GPT-2, and our runtime trains no other transformer", m.name);
  }
  if (l.tensor * l.pipeline * l.context * l.expert != 1) {
    return "this accounting is of data parallelism; tensor, pipeline, context and expert are 1";
  }
  if (l.shard_group != 0) {
    return "this accounting is of shards over all ranks; leave out the shard group";
  }
  if (l.gradient_precision != gradient_dtype(l.precision)) {
    return fmt::format("gradients in {}: our runtime has them in {} beside {} weights",
                       name_of(l.gradient_precision), name_of(gradient_dtype(l.precision)),
                       name_of(l.precision));
  }
  return "";
}

RuntimeMemory plan_runtime_memory(const Transformer& m, const Layout& l,
                                  const RuntimeOptions& options) {
  if (const std::string why = runtime_refusal(m, l); !why.empty()) {
    throw UsageError(why);
  }
  RuntimeMemory result;
  Books books;
  StrategyBooks strategy(m, l, books);
  take_states(l, strategy.elements(), strategy.own(), options.optimizer_states, books, result);
  if (l.data > 1) {  // a place for each rank's small message
    books.take(Category::communication, l.data * Transport::small_message.value);
  }
  RuntimeUnits model(m, l, options.threads, books);
  // In the second micro-batch, the last gradients of the first are still on their way.
  for (std::int64_t i = 0; i < std::min<std::int64_t>(2, l.micro_batches()); ++i) {
    model.begin_micro_batch();
    run_micro_batch(static_cast<int>(m.layers) + 2, l.recompute == Recompute::full, strategy,
                    model);
    model.end_micro_batch();
  }
  strategy.finish_reductions();
  // The loss; and the sums of squares of all ranks, in two numbers each.
  books.touch(Category::communication, 8);
  books.touch(Category::communication, l.sharding == Sharding::none ? 0 : 16 * (l.data + 1));
  result.device = books.ledger();
  return result;
}

}  // namespace ringworld
