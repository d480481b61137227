// What one micro-batch costs in a layer, in the head and in the embedding.
#include <algorithm>
#include <cmath>

#include "planner/numbers.h"
#include "planner/step.h"
#include "runtime/dtype.h"

namespace ringworld {
namespace {

// A product of activations (rows, inner) and weights (inner, columns), `times` of them.
struct Product {
  double rows;
  double columns;
  double inner;
  double times = 1;
};

// Sizes that all parts of a layer share. Activations have two bytes for each element.
struct Sizes {
  const Transformer& model;
  const Layout& layout;
  const Software& software;
  DeviceSpeed speed;
  Network network;
  double tokens;  // of one micro-batch on this device
  double tensor;  // degree
  double width;
  double spread;   // tensor where sequence parallelism cuts what is not split by heads, else 1
  double element;  // bytes of an activation

  double stream() const { return tokens * width * element; }  // bytes of the residual stream
};

void add_product(const Sizes& z, const Product& p, PassTime& forward, PassTime& backward) {
  forward.matmul += p.times * matmul_seconds(z.speed, p.rows, p.columns, p.inner);
  const double weights = p.times * matmul_seconds(z.speed, p.inner, p.columns, p.rows);
  backward.matmul += weights + p.times * matmul_seconds(z.speed, p.rows, p.inner, p.columns);
  backward.weight_matmul += weights;
}

void add_kernels(const Sizes& z, double forward_count, PassTime& forward, PassTime& backward) {
  forward.kernels += forward_count * z.speed.kernel_seconds;
  backward.kernels += 2 * forward_count * z.speed.kernel_seconds;
}

void add_attention_products(const Sizes& z, PassTime& forward, PassTime& backward) {
  const Transformer& m = z.model;
  const double heads = as_double(m.heads) / z.tensor;
  if (m.latent) {
    const LatentAttention& l = *m.latent;
    const double query = heads * as_double(l.plain_head + l.rotary_head);
    const double key_value = as_double(l.key_value_rank);
    if (l.query_rank > 0) {
      add_product(z, {z.tokens, as_double(l.query_rank), z.width}, forward, backward);
    }
    add_product(z, {z.tokens, query, l.query_rank > 0 ? as_double(l.query_rank) : z.width}, forward,
                backward);
    add_product(z, {z.tokens, key_value + as_double(l.rotary_head), z.width}, forward, backward);
    add_product(z, {z.tokens, heads * as_double(l.plain_head + l.value_head), key_value}, forward,
                backward);
    add_product(z, {z.tokens, z.width, heads * as_double(l.value_head)}, forward, backward);
    return;
  }
  const double head = as_double(m.head_size);
  const double key_values = std::max(1.0, as_double(m.kv_heads) / z.tensor);
  add_product(z, {z.tokens, (heads + 2 * key_values) * head, z.width}, forward, backward);
  add_product(z, {z.tokens, z.width, heads * head}, forward, backward);
}

// Scores, softmax and weighted values: once forward, and in backward two products for each.
struct Core {
  double forward = 0;
  double backward = 0;
};
Core attention_core(const Sizes& z) {
  const Transformer& m = z.model;
  const double heads = as_double(m.heads) / z.tensor;
  const double keys =
      m.latent ? as_double(m.latent->plain_head + m.latent->rotary_head) : as_double(m.head_size);
  const double values = m.latent ? as_double(m.latent->value_head) : as_double(m.head_size);
  const double length = as_double(z.layout.sequence_length);
  if (z.software.flash) {
    // Positions that a token may not see are left out; backward computes the scores again, five
    // products to forward's two (Dao et al., FlashAttention, 2022, section 3.1).
    const double forward = z.tokens * length * heads * (keys + values) / z.speed.flash_rate;
    return {forward, 2.5 * forward};
  }
  const double maps = z.tokens / length * heads;
  const double scores = maps * length * length;
  const auto product = [&](double columns, double inner) {
    return maps * matmul_seconds(z.speed, length, columns, inner);
  };
  // Softmax with mask reads and writes the scores, backward reads two and writes one; dropout also
  // its mask of one byte.
  const double softmax = 2 * z.element;
  const double dropout = z.software.dropout ? 2 * z.element + 1 : 0;
  const double softmax_back = 3 * z.element;
  return {product(length, keys) + product(values, length) +
              elementwise_seconds(z.speed, scores * (softmax + dropout)),
          2 * product(length, keys) + 2 * product(values, length) +
              elementwise_seconds(z.speed, scores * (softmax_back + dropout))};
}

// Collectives of the ranks that share a layer: forward all-reduces the outputs of attention and of
// the feed-forward part, backward the gradients of their inputs. Sequence parallelism replaces each
// by a reduce-scatter and an all-gather (Korthikanti et al., 2022, section 4.2.2) and gathers the
// inputs once more in backward.
double tensor_seconds(const Sizes& z, bool backward) {
  if (z.layout.tensor == 1) {
    return 0;
  }
  const RankGroup group = group_of_axis(z.network, z.layout.tensor, 1);
  const double bytes = z.stream();
  if (!z.layout.sequence_parallel) {
    return 2 * all_reduce_time(z.network, group, bytes).seconds;
  }
  const double gathered = all_gather_time(z.network, group, bytes).seconds;
  const double pair = reduce_scatter_time(z.network, group, bytes).seconds + gathered;
  return 2 * pair + (backward ? 2 * gathered : 0);
}

// Context-parallel ranks gather keys and values of the whole sequence; backward reduce-scatters
// their gradients, and gathers again.
double context_seconds(const Sizes& z, bool backward) {
  if (z.layout.context == 1) {
    return 0;
  }
  const Transformer& m = z.model;
  const double kept =
      m.latent ? as_double(m.latent->key_value_rank + m.latent->rotary_head)
               : 2 * as_double(m.head_size) * std::max(1.0, as_double(m.kv_heads) / z.tensor);
  const RankGroup group = group_of_axis(z.network, z.layout.context, z.layout.tensor);
  const double bytes = z.tokens * as_double(z.layout.context) * kept * z.element;
  const double gathered = all_gather_time(z.network, group, bytes).seconds;
  return backward ? gathered + reduce_scatter_time(z.network, group, bytes).seconds : gathered;
}

void add_attention(const Sizes& z, LayerTime& layer) {
  add_attention_products(z, layer.forward, layer.backward);
  const Core core = attention_core(z);
  layer.forward.attention = core.forward;
  layer.backward.attention = core.backward;
  if (z.layout.recompute == Recompute::selective) {
    layer.again.attention = core.forward;
  }
  // Norm: reads and writes the stream; backward also reads the input. Residual sum: three streams
  // forward, and in backward the sum of two gradients. Dropout: a mask of one byte.
  const double mask = z.software.dropout ? 1 / z.element : 0;
  const double stream = z.stream() / z.spread;
  const double rotary = z.model.learned_positions ? 0 : 2 * z.stream() / z.tensor;
  layer.forward.elementwise += elementwise_seconds(z.speed, stream * (2 + 3 + mask) + rotary);
  layer.backward.elementwise +=
      elementwise_seconds(z.speed, stream * (3 + 3 + (mask > 0 ? 2 + mask : 0)) + rotary);
  add_kernels(z, z.software.flash ? 6 : 9, layer.forward, layer.backward);
}

void add_feed_forward(const Sizes& z, double hidden, double tokens, double times, double streams,
                      LayerTime& layer) {
  const bool gated = z.model.gated_mlp;
  add_product(z, {tokens, (gated ? 2 : 1) * hidden / z.tensor, z.width, times}, layer.forward,
              layer.backward);
  add_product(z, {tokens, z.width, hidden / z.tensor, times}, layer.forward, layer.backward);
  const double inner = times * tokens * hidden / z.tensor * z.element;
  const double stream = z.stream() / z.spread * streams;
  const double mask = z.software.dropout ? 1 / z.element : 0;
  layer.forward.elementwise +=
      elementwise_seconds(z.speed, inner * (gated ? 3 : 2) + stream * (2 + 3 + mask));
  layer.backward.elementwise += elementwise_seconds(
      z.speed, inner * (gated ? 5 : 3) + stream * (3 + 3 + (mask > 0 ? 2 + mask : 0)));
  add_kernels(z, 5, layer.forward, layer.backward);
}

// Each token goes to its active experts, wherever they are, and what they computed comes back.
void add_experts(const Sizes& z, LayerTime& layer) {
  const Experts& e = *z.model.experts;
  const double routed = z.tokens * as_double(e.active);
  const double here = as_double(e.count / z.layout.expert);  // experts on this device
  add_product(z, {z.tokens, as_double(e.count), z.width}, layer.forward, layer.backward);
  add_feed_forward(z, as_double(e.hidden), routed / here, here, 1, layer);
  if (e.shared > 0) {
    add_feed_forward(z, as_double(e.hidden * e.shared), z.tokens, 1, 0, layer);
  }
  // Tokens are put in the order of their experts, and back.
  const double moved = routed * z.width * z.element / z.spread;
  layer.forward.elementwise += elementwise_seconds(z.speed, 4 * moved);
  layer.backward.elementwise += elementwise_seconds(z.speed, 4 * moved);
  if (z.layout.expert > 1) {
    const RankGroup group = group_of_axis(z.network, z.layout.expert, z.layout.tensor);
    const double both = 2 * all_to_all_time(z.network, group, moved).seconds;
    layer.forward.expert = both;
    layer.backward.expert = both;
  }
}

LayerTime layer_time(const Sizes& z, bool has_experts) {
  LayerTime layer;
  add_attention(z, layer);
  if (has_experts) {
    add_experts(z, layer);
  } else {
    add_feed_forward(z, as_double(z.model.hidden), z.tokens, 1, 1, layer);
  }
  layer.forward.tensor = tensor_seconds(z, false);
  layer.backward.tensor = tensor_seconds(z, true);
  layer.forward.context = context_seconds(z, false);
  layer.backward.context = context_seconds(z, true);
  if (z.layout.recompute == Recompute::full) {
    layer.again = layer.forward;
  }
  return layer;
}

void add_head(const Sizes& z, UnitTimes& units) {
  const double vocabulary = as_double(z.model.vocabulary) / z.tensor;
  add_product(z, {z.tokens, vocabulary, z.width}, units.head_forward, units.head_backward);
  // Logits in 32 bits: written, read for the largest, the sum and the loss; their gradient.
  const double logits = z.tokens * vocabulary;
  units.head_forward.elementwise = elementwise_seconds(z.speed, logits * (2 + 3 * 4));
  units.head_backward.elementwise = elementwise_seconds(z.speed, logits * (4 + 2));
  add_kernels(z, 4, units.head_forward, units.head_backward);
  // Rows read and written, and in backward added to 32-bit gradients.
  units.embedding.elementwise =
      elementwise_seconds(z.speed, z.tokens * z.width * (2 * z.element + 2 + 2 * 4));
}

}  // namespace

PassTime& PassTime::operator+=(const PassTime& other) {
  matmul += other.matmul;
  weight_matmul += other.weight_matmul;
  attention += other.attention;
  elementwise += other.elementwise;
  kernels += other.kernels;
  tensor += other.tensor;
  context += other.context;
  expert += other.expert;
  return *this;
}

PassTime operator*(double n, const PassTime& pass) {
  return {.matmul = n * pass.matmul,
          .weight_matmul = n * pass.weight_matmul,
          .attention = n * pass.attention,
          .elementwise = n * pass.elementwise,
          .kernels = n * pass.kernels,
          .tensor = n * pass.tensor,
          .context = n * pass.context,
          .expert = n * pass.expert};
}

UnitTimes unit_times(const Transformer& model, const Layout& layout, const Machine& machine,
                     const Software& software) {
  const double tokens =
      as_double(layout.micro_batch) * as_double(layout.sequence_length) / as_double(layout.context);
  const Sizes sizes{.model = model,
                    .layout = layout,
                    .software = software,
                    .speed = speed_of(machine, layout.precision, software.fp8),
                    .network = machine.network(),
                    .tokens = tokens,
                    .tensor = as_double(layout.tensor),
                    .width = as_double(model.width),
                    .spread = layout.sequence_parallel ? as_double(layout.tensor) : 1,
                    .element = as_double(size_of(layout.precision).value)};
  UnitTimes units;
  if (!model.experts || model.experts->dense_layers > 0) {
    units.dense = layer_time(sizes, false);
  }
  if (model.experts) {
    units.experts = layer_time(sizes, true);
  }
  add_head(sizes, units);
  return units;
}

}  // namespace ringworld
