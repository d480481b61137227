#include "planner/activations.h"

#include <algorithm>

namespace ringworld {
namespace {

// Of `heads` heads of keys and values, those of one tensor rank: at least one, a copy of it where
// there are fewer heads than ranks.
std::int64_t own_kv_heads(const Transformer& model, std::int64_t tensor) {
  return std::max<std::int64_t>(1, model.kv_heads / tensor);
}

void add_attention(const Transformer& m, const Layout& l, std::int64_t size,
                   LayerActivations& sum) {
  const std::int64_t heads = m.heads / l.tensor;
  if (!m.latent) {
    // Queries, keys, values, and attention's output.
    sum.split += size * 2 * (heads + own_kv_heads(m, l.tensor)) * m.head_size;
    return;
  }
  const LatentAttention& latent = *m.latent;
  // Before and after their norms; and the one key with a position.
  sum.whole += size * (2 * (latent.query_rank + latent.key_value_rank) + latent.rotary_head);
  sum.split +=
      size * heads * (2 * (latent.plain_head + latent.rotary_head) + 2 * latent.value_head);
}

// What a token keeps in a feed-forward part of this hidden width, beside its input: the inner
// function's input and output, and what gates it.
std::int64_t inner_bytes(const Transformer& m, std::int64_t size, std::int64_t hidden) {
  return size * (m.gated_mlp ? 3 : 2) * hidden;
}

}  // namespace

LayerActivations layer_activations(const Transformer& m, const Layout& l,
                                   const ActivationOptions& options, std::int64_t layer) {
  const std::int64_t size = size_of(l.precision).value;
  const std::int64_t width = size * m.width;
  const std::int64_t mask = options.dropout ? 1 : 0;
  LayerActivations sum;
  sum.input = width;
  // Inputs of both norms, of the projection to queries, keys and values, and of the feed-forward
  // part; the masks behind attention and feed-forward part.
  sum.whole = 4 * width + 2 * mask * m.width;
  add_attention(m, l, size, sum);
  if (m.has_experts(layer)) {
    const Experts& experts = *m.experts;
    // The router's probabilities, in 32 bits; each active expert's input and output.
    sum.whole += 4 * experts.count + experts.active * 2 * width;
    sum.split +=
        inner_bytes(m, size, (experts.active + experts.shared) * experts.hidden / l.tensor);
  } else {
    sum.split += inner_bytes(m, size, m.hidden / l.tensor);
  }
  const std::int64_t heads = m.heads / l.tensor;
  // Softmax's output, its mask, and what the mask leaves; or a 32-bit number for each row.
  sum.scores =
      options.fused_attention ? 4 * heads : heads * l.sequence_length * (size + mask * (1 + size));
  return sum;
}

std::int64_t tokens_at_once(const Layout& l) {
  return l.micro_batch * l.sequence_length / l.context;
}

std::int64_t whole_bytes(const LayerActivations& layer, const Layout& l) {
  const std::int64_t tokens = tokens_at_once(l);
  return layer.whole * tokens / (l.sequence_parallel ? l.tensor : 1) +
         (layer.split + layer.scores) * tokens;
}

std::int64_t kept_bytes(const LayerActivations& layer, const Layout& l) {
  const std::int64_t tokens = tokens_at_once(l);
  switch (l.recompute) {
    case Recompute::none:
      break;
    case Recompute::selective:
      return whole_bytes(layer, l) - layer.scores * tokens;
    case Recompute::full:
      return layer.input * tokens / (l.sequence_parallel ? l.tensor : 1);
  }
  return whole_bytes(layer, l);
}

}  // namespace ringworld
