#include "planner/collectives.h"

#include <algorithm>

#include "planner/numbers.h"
#include "runtime/dtype.h"

namespace ringworld {
namespace {

class List {
 public:
  List(const Transformer& model, const Layout& layout, const Machine& machine,
       const Software& software, std::int64_t stage)
      : m_(model),
        l_(layout),
        software_(software),
        network_(machine.network()),
        layers_(layers_of_stage(model, layout, stage)),
        held_(held_parameters(model, layout)) {
    weight_ = as_double(size_of(l_.precision).value);
    tokens_ = as_double(l_.micro_batch * l_.sequence_length) / as_double(l_.context);
    micro_batches_ = as_double(l_.micro_batches());
    passes_ = l_.recompute == Recompute::full ? 2 : 1;  // forward, and again
  }

  std::vector<CollectiveUse> result() {
    add_tensor();
    add_context();
    add_expert();
    add_pipeline();
    add_data();
    return std::move(uses_);
  }

 private:
  enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, flat };

  void add(StepPart axis, Operation operation, std::string_view what, const RankGroup& group,
           double bytes, double times) {
    if (group.ranks == 1 || bytes == 0 || times == 0) {
      return;
    }
    constexpr std::string_view names[] = {"all_reduce", "reduce_scatter", "all_gather",
                                          "all_to_all", "all_gather"};
    CollectiveTime each;
    switch (operation) {
      case Operation::all_reduce:
        each = all_reduce_time(network_, group, bytes);
        break;
      case Operation::reduce_scatter:
        each = reduce_scatter_time(network_, group, bytes);
        break;
      case Operation::all_gather:
        each = all_gather_time(network_, group, bytes);
        break;
      case Operation::all_to_all:
        each = all_to_all_time(network_, group, bytes);
        break;
      case Operation::flat:
        each = flat_all_gather_time(network_, group, bytes);
        break;
    }
    uses_.push_back(
        {axis, names[static_cast<std::size_t>(operation)], what, group, bytes, times, each});
  }

  void add_tensor() {
    const RankGroup group = group_of_axis(network_, l_.tensor, 1);
    const double bytes = tokens_ * as_double(m_.width) * weight_;
    const double passes = layers_.all() * micro_batches_ * (passes_ + 1);
    if (!l_.sequence_parallel) {
      add(StepPart::tensor, Operation::all_reduce, "activations", group, bytes, 2 * passes);
      return;
    }
    const double again = 2 * layers_.all() * micro_batches_;  // inputs, in backward
    add(StepPart::tensor, Operation::all_gather, "activations", group, bytes, 2 * passes + again);
    add(StepPart::tensor, Operation::reduce_scatter, "activations", group, bytes, 2 * passes);
  }

  void add_context() {
    const double kept = m_.latent
                            ? as_double(m_.latent->key_value_rank + m_.latent->rotary_head)
                            : 2 * as_double(m_.head_size) *
                                  std::max(1.0, as_double(m_.kv_heads) / as_double(l_.tensor));
    const RankGroup group = group_of_axis(network_, l_.context, l_.tensor);
    const double bytes = tokens_ * as_double(l_.context) * kept * weight_;
    const double passes = layers_.all() * micro_batches_;
    add(StepPart::context, Operation::all_gather, "keys and values", group, bytes,
        passes * (passes_ + 1));
    add(StepPart::context, Operation::reduce_scatter, "their gradients", group, bytes, passes);
  }

  void add_expert() {
    if (!m_.experts) {
      return;
    }
    const RankGroup group = group_of_axis(network_, l_.expert, l_.tensor);
    const double bytes = tokens_ * as_double(m_.experts->active * m_.width) * weight_ /
                         (l_.sequence_parallel ? as_double(l_.tensor) : 1);
    add(StepPart::expert, Operation::all_to_all, "tokens of experts", group, bytes,
        2 * layers_.experts * micro_batches_ * (passes_ + 1));
  }

  void add_pipeline() {
    if (l_.pipeline == 1) {
      return;
    }
    const bool cut = software_.cut_messages || l_.sequence_parallel;
    const double bytes = tokens_ * as_double(m_.width) * weight_ / (cut ? as_double(l_.tensor) : 1);
    const RankGroup group = group_of_axis(network_, l_.pipeline, l_.tensor * l_.context * l_.data);
    const double each = software_.paired_messages ? 2 : 4;
    uses_.push_back({StepPart::pipeline, "send", "activations", group, bytes,
                     each * as_double(l_.chunks) * micro_batches_,
                     point_to_point_time(network_, group.per_node == group.ranks, bytes)});
  }

  void add_data() {
    const double gradient = as_double(size_of(l_.gradient_precision).value);
    const std::int64_t ranks = l_.data * l_.context;
    const std::tuple<double, std::int64_t, std::string_view, std::string_view> kinds[] = {
        {held_.dense, 1, "weights", "gradients"},
        {held_.experts, l_.expert, "experts' weights", "experts' gradients"}};
    for (const auto& [count, apart, weights, gradients] : kinds) {
      const std::int64_t sharers = std::max<std::int64_t>(
          1, l_.sharding == Sharding::none ? 1 : l_.sharding_ranks() / apart);
      const std::int64_t copies = std::max<std::int64_t>(1, ranks / apart / sharers);
      const RankGroup shard = group_of_axis(network_, sharers, l_.tensor * apart);
      const RankGroup replicas = group_of_axis(network_, copies, l_.tensor * apart * sharers);
      add(StepPart::data, Operation::all_reduce, gradients, replicas,
          count * gradient / as_double(sharers), 1);
      if (l_.sharding == Sharding::zero3 && software_.flat_gather) {
        add(StepPart::data, Operation::flat, weights, shard, count * weight_, 4 * micro_batches_);
        continue;
      }
      const bool gathers = l_.sharding == Sharding::zero3;
      add(StepPart::data, Operation::all_gather, weights, shard, count * weight_,
          gathers ? 2 * micro_batches_ : 1);
      add(StepPart::data, Operation::reduce_scatter, gradients, shard, count * gradient,
          l_.sharding == Sharding::zero1 ? 1 : micro_batches_);
    }
  }

  const Transformer& m_;
  const Layout& l_;
  const Software& software_;
  Network network_;
  StageLayers layers_;
  HeldParameters held_;
  double weight_ = 2;
  double tokens_ = 0;
  double micro_batches_ = 1;
  double passes_ = 1;
  std::vector<CollectiveUse> uses_;
};

}  // namespace

std::vector<CollectiveUse> collectives_of_step(const Transformer& model, const Layout& layout,
                                               const Machine& machine, const Software& software,
                                               std::int64_t stage) {
  return List(model, layout, machine, software, stage).result();
}

}  // namespace ringworld
