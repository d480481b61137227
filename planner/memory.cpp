#include "planner/memory.h"

#include <algorithm>
#include <numeric>

#include "parallel/pipeline_schedule.h"

namespace ringworld {
namespace {

std::int64_t divided_up(std::int64_t what, std::int64_t by) {
  return (what + by - 1) / by;
}

// Elements of one tensor and expert rank. Experts are spread over data-parallel ranks and sharded
// over fewer, so they are counted apart.
struct Elements {
  std::int64_t dense = 0;
  std::int64_t experts = 0;

  std::int64_t total() const { return dense + experts; }
  Elements& operator+=(const Elements& other) {
    dense += other.dense;
    experts += other.experts;
    return *this;
  }
};
Elements operator*(std::int64_t n, const Elements& e) {
  return {n * e.dense, n * e.experts};
}

Elements elements_of_layer(const Transformer& m, const Layout& l, std::int64_t layer) {
  const LayerParameters p = layer_parameters(m, layer);
  std::int64_t attention = p.attention_split;
  if (!m.latent && l.tensor > m.kv_heads) {
    // Every rank has a head of keys and values, so that some have copies of the same.
    attention +=
        2 * (l.tensor - m.kv_heads) * m.head_size * (m.width + (m.query_key_value_bias ? 1 : 0));
  }
  return {.dense = p.attention_whole + p.mlp_whole + p.router + p.norms +
                   divided_up(attention + p.mlp_split + p.shared_experts, l.tensor),
          .experts = divided_up(p.experts, l.expert * l.tensor)};
}

// The model as one GPU's stage sees it: layers without and with experts are all alike, so that a
// stage is known by how many it has of either.
class StageShape {
 public:
  StageShape(const Transformer& m, const Layout& l, const MemoryOptions& options)
      : m_(m), l_(l), options_(options), dense_layers_(m.layers) {
    if (m.experts) {
      dense_layers_ = std::min(m.layers, m.experts->dense_layers);
      with_experts_ = elements_of_layer(m, l, m.layers - 1);
      kept_with_experts_ = layer_activations(m, l, options.activations, m.layers - 1);
    }
    if (dense_layers_ > 0) {
      dense_ = elements_of_layer(m, l, 0);
      kept_dense_ = layer_activations(m, l, options.activations, 0);
    }
    const std::int64_t rows =
        padded_vocabulary(m.vocabulary, l.tensor, options.pad_vocabulary) / l.tensor;
    vocabulary_ = rows;
    table_ = rows * m.width;
  }

  // Of [first, end), how many have no experts.
  std::int64_t dense_of(const LayerRange& range) const {
    return std::clamp<std::int64_t>(dense_layers_ - range.first, 0, range.count());
  }
  Elements layers(const LayerRange& range) const {
    const std::int64_t dense = dense_of(range);
    Elements sum = dense * dense_;
    sum += (range.count() - dense) * with_experts_;
    return sum;
  }
  std::int64_t kept(const LayerRange& range) const {
    const std::int64_t dense = dense_of(range);
    return dense * kept_bytes(kept_dense_, l_) +
           (range.count() - dense) * kept_bytes(kept_with_experts_, l_);
  }
  Elements largest_layer(const LayerRange& range) const {
    const std::int64_t dense = dense_of(range);
    return dense < range.count() ? with_experts_ : dense > 0 ? dense_ : Elements{};
  }
  std::int64_t largest_activations(const LayerRange& range) const {
    const std::int64_t dense = dense_of(range);
    return std::max(dense > 0 ? whole_bytes(kept_dense_, l_) : 0,
                    dense < range.count() ? whole_bytes(kept_with_experts_, l_) : 0);
  }
  std::int64_t embedding() const {
    return table_ + (m_.learned_positions ? m_.context * m_.width : 0);
  }
  std::int64_t norm() const { return m_.norm == NormKind::layer ? 2 * m_.width : m_.width; }
  std::int64_t table() const { return table_; }
  std::int64_t vocabulary() const { return vocabulary_; }

 private:
  const Transformer& m_;
  const Layout& l_;
  const MemoryOptions& options_;
  std::int64_t dense_layers_;
  Elements dense_;
  Elements with_experts_;
  LayerActivations kept_dense_;
  LayerActivations kept_with_experts_;
  std::int64_t vocabulary_ = 0;  // rows of this tensor rank
  std::int64_t table_ = 0;       // elements of them
};

// Which layers a stage holds, chunk by chunk.
std::vector<LayerRange> chunks_of(const Transformer& m, const Layout& l, std::int64_t stage) {
  std::vector<LayerRange> chunks;
  if (!l.stage_layers.empty()) {
    const auto begin = l.stage_layers.begin();
    const std::int64_t first = std::accumulate(begin, begin + stage, std::int64_t{0});
    return {{first, first + l.stage_layers[static_cast<std::size_t>(stage)]}};
  }
  for (std::int64_t chunk = 0; chunk < l.chunks; ++chunk) {
    chunks.push_back(layers_of_part(m.layers, l.pipeline * l.chunks, chunk * l.pipeline + stage));
  }
  return chunks;
}

// Chunks of micro-batches that wait for backward at the stage's peak.
std::int64_t live_chunks(const Layout& l, const PipelineKind* kind, std::int64_t stage) {
  if (kind == nullptr) {
    return 1;
  }
  const PipelineShape shape{.stages = static_cast<int>(l.pipeline),
                            .micro_batches = static_cast<int>(l.micro_batches()),
                            .chunks = static_cast<int>(l.chunks)};
  return kind->live.value(shape, static_cast<int>(stage));
}

class StagePlan {
 public:
  StagePlan(const Transformer& m, const Layout& l, const MemoryOptions& options,
            const StageShape& shape, std::int64_t stage, std::int64_t live)
      : m_(m), l_(l), options_(options), shape_(shape), chunks_(chunks_of(m, l, stage)) {
    plan_.stage = stage;
    plan_.live = live;
    first_ = stage == 0;
    last_ = stage == l.pipeline - 1;
    for (const LayerRange& chunk : chunks_) {
      plan_.layers += chunk.count();
    }
    add_states();
    add_activations();
    add_transient();
    plan_.device[MemoryItem::reserved] = options_.reserved;
  }

  StageMemory result() const { return plan_; }

 private:
  void add(MemoryItem item, std::int64_t bytes) { plan_.device[item] += Bytes(bytes); }
  // `bytes` for each element of the stage, sharded or not.
  void add_state(MemoryItem item, std::int64_t bytes, bool sharded) {
    const std::int64_t ranks = sharded ? l_.sharding_ranks() : 1;
    const std::int64_t expert_ranks = std::max<std::int64_t>(1, ranks / l_.expert);
    add(item,
        bytes * (divided_up(elements_.dense, ranks) + divided_up(elements_.experts, expert_ranks)));
  }
  void move_away(MemoryItem item) {
    (l_.offload_to_file ? plan_.file : plan_.host)[item] = plan_.device[item];
    plan_.device[item] = Bytes(0);
  }

  void add_states() {
    for (const LayerRange& chunk : chunks_) {
      elements_ += shape_.layers(chunk);
    }
    // A tied table is on the first stage and, where that is another, on the last.
    elements_.dense += first_ ? shape_.embedding() : 0;
    elements_.dense += last_ ? shape_.norm() : 0;
    elements_.dense += last_ && !(m_.tied_head && first_) ? shape_.table() : 0;
    plan_.parameters = elements_.total();

    const std::int64_t wide = size_of(wide_dtype(l_.precision)).value;
    const bool mixed = l_.precision != wide_dtype(l_.precision);
    add_state(MemoryItem::weights, size_of(l_.precision).value, l_.sharding == Sharding::zero3);
    add_state(MemoryItem::gradients, size_of(l_.gradient_precision).value,
              l_.sharding >= Sharding::zero2);
    add_state(MemoryItem::master_weights, mixed ? wide : 0, l_.sharding >= Sharding::zero1);
    add_state(MemoryItem::moments, wide * options_.optimizer_states,
              l_.sharding >= Sharding::zero1);
    if (l_.offload >= PlannedOffload::optimizer) {
      move_away(MemoryItem::moments);
    }
    if (l_.offload >= PlannedOffload::master) {
      move_away(MemoryItem::master_weights);
    }
    if (l_.offload == PlannedOffload::parameters) {
      move_away(MemoryItem::weights);
    }
  }

  // Bytes of `of_token` for each token of a micro-batch, which tensor ranks share out with
  // sequence parallelism.
  std::int64_t whole(std::int64_t of_token) const {
    return of_token * tokens_at_once(l_) / (l_.sequence_parallel ? l_.tensor : 1);
  }

  void add_activations() {
    const std::int64_t size = size_of(l_.precision).value;
    // Where chunks differ, the live ones are taken as the mean of them.
    std::int64_t of_all_chunks = 0;
    for (const LayerRange& chunk : chunks_) {
      of_all_chunks += shape_.kept(chunk);
      largest_ = std::max(largest_, shape_.largest_activations(chunk));
    }
    add(MemoryItem::activations, divided_up(of_all_chunks * plan_.live, l_.chunks));
    if (first_ && options_.activations.dropout) {
      add(MemoryItem::activations, divided_up(whole(m_.width) * plan_.live, l_.chunks));
    }
    if (l_.recompute == Recompute::full) {
      add(MemoryItem::recomputed_layer, largest_);
    }
    if (last_) {
      // The last norm's input and the head's; logits in 32 bits.
      const std::int64_t micro_batches = l_.chunks == 1 ? plan_.live : 1;
      add(MemoryItem::activations, micro_batches * whole(2 * size * m_.width));
      add(MemoryItem::logits, micro_batches * 4 * shape_.vocabulary() * tokens_at_once(l_));
    }
  }

  // Elements of the two neighbouring units that are largest together, all whole: one computes
  // while the other comes or goes.
  std::int64_t two_units() const {
    Elements largest;
    for (const LayerRange& chunk : chunks_) {
      const Elements layer = shape_.largest_layer(chunk);
      largest = layer.total() > largest.total() ? layer : largest;
    }
    const std::int64_t layer = largest.total();
    std::int64_t most = (plan_.layers > 1 ? 2 : 1) * layer;
    most = std::max(most, first_ ? shape_.embedding() + layer : 0);
    most = std::max(most, last_ ? shape_.table() + shape_.norm() + layer : 0);
    return most;
  }

  void add_transient() {
    const std::int64_t size = size_of(l_.precision).value;
    const bool shards = l_.sharding_ranks() > 1;
    if (l_.sharding == Sharding::zero3 && (shards || l_.offload == PlannedOffload::parameters)) {
      add(MemoryItem::gathered_units, size * two_units());
    }
    if (l_.sharding >= Sharding::zero2 && shards) {
      add(MemoryItem::buckets, size_of(l_.gradient_precision).value * two_units());
    }
    if (l_.sequence_parallel) {
      add(MemoryItem::communication, size * m_.width * tokens_at_once(l_));  // gathered inputs
    }
    if (l_.pipeline > 1) {
      add(MemoryItem::communication, 2 * whole(size * m_.width));  // one comes, one goes
    }
    // In backward, gradients of the feed-forward part's insides and of its input; of the logits,
    // in the precision of the weights.
    const std::int64_t hidden =
        m_.experts ? std::max(m_.experts->dense_layers > 0 ? m_.hidden : 0,
                              m_.experts->hidden * (m_.experts->active + m_.experts->shared))
                   : m_.hidden;
    const std::int64_t tokens = tokens_at_once(l_);
    const std::int64_t of_layer =
        size * tokens * ((m_.gated_mlp ? 2 : 1) * hidden / l_.tensor + m_.width);
    const std::int64_t of_head = last_ ? size * tokens * shape_.vocabulary() : 0;
    add(MemoryItem::workspace, std::max(of_layer, of_head));
  }

  const Transformer& m_;
  const Layout& l_;
  const MemoryOptions& options_;
  const StageShape& shape_;
  const std::vector<LayerRange> chunks_;
  bool first_ = false;
  bool last_ = false;
  Elements elements_;
  std::int64_t largest_ = 0;  // activations of one layer, nothing recomputed
  StageMemory plan_;
};

}  // namespace

std::string_view name_of(MemoryItem item) {
  constexpr std::string_view names[memory_item_count] = {
      "weights",     "gradients",        "master weights", "moments",
      "activations", "recomputed layer", "logits",         "gathered units",
      "buckets",     "communication",    "workspace",      "reserved"};
  return names[static_cast<std::size_t>(item)];
}

std::string_view meaning_of(MemoryItem item) {
  constexpr std::string_view meanings[memory_item_count] = {
      "in the training precision",
      "in the precision given",
      "32-bit copies of 16-bit weights",
      "of the optimizer, in 32 bits",
      "that wait for backward, of all live micro-batches",
      "one layer's activations, computed again",
      "in 32 bits, on the last stage",
      "weights of two neighbouring units, whole",
      "gradients of two neighbouring units, whole",
      "inputs gathered over tensor ranks, and what stages exchange",
      "gradients of a layer's insides or of the logits",
      "allowance for context, libraries and allocator"};
  return meanings[static_cast<std::size_t>(item)];
}

Bytes ItemBytes::total() const {
  return std::accumulate(of.begin(), of.end(), Bytes(0));
}

Bytes ItemBytes::states() const {
  return (*this)[MemoryItem::weights] + (*this)[MemoryItem::gradients] +
         (*this)[MemoryItem::master_weights] + (*this)[MemoryItem::moments];
}

MemoryPlan plan_memory(const Transformer& model, const Layout& layout,
                       const MemoryOptions& options) {
  const StageShape shape(model, layout, options);
  const PipelineKind* kind = layout.pipeline > 1 ? &find_pipeline(layout.schedule) : nullptr;
  MemoryPlan plan;
  plan.stages.reserve(static_cast<std::size_t>(layout.pipeline));
  for (std::int64_t stage = 0; stage < layout.pipeline; ++stage) {
    plan.stages.push_back(
        StagePlan(model, layout, options, shape, stage, live_chunks(layout, kind, stage)).result());
    if (plan.stages.back().device.total() > plan.worst().device.total()) {
      plan.fullest = static_cast<std::size_t>(stage);
    }
  }
  return plan;
}

}  // namespace ringworld
