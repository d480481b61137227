#include "planner/transformer.h"

#include <fmt/format.h>

namespace ringworld {
namespace {

std::int64_t norm_parameters(const Transformer& model, std::int64_t width) {
  return model.norm == NormKind::layer ? 2 * width : width;
}

// Projections between the width and queries, keys and values, and back. All biases but the
// output's are split as their weights are.
void add_attention(const Transformer& model, LayerParameters& layer) {
  const std::int64_t width = model.width;
  const std::int64_t inner = model.attention_width();
  layer.attention_whole += model.linear_bias ? width : 0;
  layer.attention_split += inner * width;
  if (!model.latent) {
    const std::int64_t outputs = (model.heads + 2 * model.kv_heads) * model.head_size;
    layer.attention_split += outputs * width + (model.query_key_value_bias ? outputs : 0);
    return;
  }
  const LatentAttention& latent = *model.latent;
  const std::int64_t query = model.heads * (latent.plain_head + latent.rotary_head);
  const std::int64_t key_value = model.heads * (latent.plain_head + latent.value_head);
  if (latent.query_rank > 0) {
    layer.attention_whole += latent.query_rank * width + latent.query_rank;  // its norm
    layer.attention_split += query * latent.query_rank;
  } else {
    layer.attention_split += query * width;
  }
  layer.attention_whole += (latent.key_value_rank + latent.rotary_head) * width;
  layer.attention_whole += latent.key_value_rank;  // its norm
  layer.attention_split += key_value * latent.key_value_rank;
}

struct FeedForwardParameters {
  std::int64_t split;
  std::int64_t whole;  // the output's bias
};
FeedForwardParameters feed_forward(const Transformer& model, std::int64_t hidden) {
  const std::int64_t inward = model.gated_mlp ? 2 : 1;
  return {.split = (inward + 1) * hidden * model.width + (model.linear_bias ? inward * hidden : 0),
          .whole = model.linear_bias ? model.width : 0};
}

// `active`: of the experts only those that one token passes through.
ParameterCount count(const Transformer& model, bool active) {
  ParameterCount sum;
  sum.embedding = model.vocabulary * model.width;
  sum.positions = model.learned_positions ? model.context * model.width : 0;
  sum.head = model.tied_head ? 0 : model.vocabulary * model.width;
  sum.norms = norm_parameters(model, model.width);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const LayerParameters layer = layer_parameters(model, i);
    sum.attention += layer.attention_split + layer.attention_whole;
    sum.mlp += layer.mlp_split + layer.mlp_whole;
    sum.experts += layer.shared_experts +
                   (active && model.experts ? model.experts->active * layer.expert : layer.experts);
    sum.router += layer.router;
    sum.norms += layer.norms;
  }
  return sum;
}

}  // namespace

std::int64_t Transformer::attention_width() const {
  return heads * (latent ? latent->value_head : head_size);
}

bool Transformer::has_experts(std::int64_t layer) const {
  return experts && layer >= experts->dense_layers;
}

std::string describe(const Transformer& m) {
  std::string text = fmt::format("{} layers, width {}, {} heads", m.layers, m.width, m.heads);
  if (m.latent) {
    text += fmt::format(" of {} + {} with latent attention of rank {}", m.latent->plain_head,
                        m.latent->rotary_head, m.latent->key_value_rank);
  } else {
    text += fmt::format(" of {}", m.head_size);
    text += m.kv_heads < m.heads ? fmt::format(" ({} of keys and values)", m.kv_heads) : "";
  }
  if (!m.experts || m.experts->dense_layers > 0) {
    text +=
        fmt::format(", {} of {}", m.gated_mlp ? "gated feed-forward" : "feed-forward", m.hidden);
  }
  if (m.experts) {
    const Experts& e = *m.experts;
    text += fmt::format(", {} experts of {}, {} active", e.count, e.hidden, e.active);
    text += e.shared > 0 ? fmt::format(" and {} shared", e.shared) : "";
    text += e.dense_layers > 0 ? fmt::format(", from layer {} on", e.dense_layers) : "";
  }
  return text + fmt::format(", vocabulary {}{}, context {}", m.vocabulary,
                            m.tied_head ? " with a tied head" : "", m.context);
}

std::int64_t LayerParameters::total() const {
  return attention_split + attention_whole + mlp_split + mlp_whole + router + experts +
         shared_experts + norms;
}

LayerParameters layer_parameters(const Transformer& model, std::int64_t layer) {
  LayerParameters result;
  result.norms = 2 * norm_parameters(model, model.width);
  add_attention(model, result);
  if (!model.has_experts(layer)) {
    const FeedForwardParameters dense = feed_forward(model, model.hidden);
    result.mlp_split = dense.split;
    result.mlp_whole = dense.whole;
    return result;
  }
  const Experts& experts = *model.experts;
  const FeedForwardParameters one = feed_forward(model, experts.hidden);
  result.router = experts.count * (model.width + (experts.router_bias ? 1 : 0));
  result.expert = one.split + one.whole;
  result.experts = experts.count * result.expert;
  result.shared_experts = experts.shared * result.expert;
  return result;
}

std::int64_t ParameterCount::total() const {
  return embedding + positions + attention + mlp + experts + router + norms + head;
}

ParameterCount count_parameters(const Transformer& model) {
  return count(model, false);
}

ParameterCount count_active_parameters(const Transformer& model) {
  return count(model, true);
}

std::int64_t padded_vocabulary(std::int64_t vocabulary, std::int64_t tensor,
                               std::int64_t multiple) {
  const std::int64_t step = multiple * tensor;
  return (vocabulary + step - 1) / step * step;
}

}  // namespace ringworld
