#include "planner/flops.h"

#include "planner/numbers.h"

namespace ringworld {
namespace {

double attention_elements(const Transformer& m) {
  const double width = as_double(m.width);
  const double heads = as_double(m.heads);
  if (m.latent) {
    const LatentAttention& l = *m.latent;
    const double query = heads * as_double(l.plain_head + l.rotary_head);
    const double key_value = as_double(l.key_value_rank);
    const double down = l.query_rank > 0
                            ? width * as_double(l.query_rank) + as_double(l.query_rank) * query
                            : width * query;
    return down + width * (key_value + as_double(l.rotary_head)) +
           key_value * heads * as_double(l.plain_head + l.value_head) +
           heads * as_double(l.value_head) * width;
  }
  const double head = as_double(m.head_size);
  return width * head * (2 * heads + 2 * as_double(m.kv_heads));
}

// Elements of queries and values of one token that meet one other token, all heads.
double attention_width(const Transformer& m) {
  const double heads = as_double(m.heads);
  return m.latent ? heads * as_double(m.latent->plain_head + m.latent->rotary_head +
                                      m.latent->value_head)
                  : heads * 2 * as_double(m.head_size);
}

}  // namespace

std::string_view name_of(FlopConvention convention) {
  constexpr std::string_view names[] = {
      "matmul", "causal", "6N", "palm", "megatron", "megatron-selective", "megatron-full"};
  return names[static_cast<std::size_t>(convention)];
}

std::string_view describe(FlopConvention convention) {
  constexpr std::string_view texts[] = {
      "every matrix product, attention over all positions",
      "every matrix product, attention over the positions that a token may see",
      "6 N, N active parameters without embeddings",
      "6 N + 12 L a d s, N active parameters with embeddings (PaLM, appendix B)",
      "72 B s l h^2 (1 + s/6h + V/12lh) (Korthikanti et al., 2022)",
      "72 B s l h^2 (1 + s/3h + V/12lh), attention recomputed (Korthikanti et al., 2022)",
      "96 B s l h^2 (1 + s/6h + V/16lh), recomputation included (Narayanan et al., Eq. 3)"};
  return texts[static_cast<std::size_t>(convention)];
}

double active_matrix_elements(const Transformer& m, std::int64_t layer) {
  const double matrices = m.gated_mlp ? 3 : 2;
  const double width = as_double(m.width);
  double elements = attention_elements(m);
  if (m.has_experts(layer)) {
    const Experts& e = *m.experts;
    elements += width * as_double(e.count) +
                matrices * width * as_double(e.hidden) * as_double(e.active + e.shared);
  } else {
    elements += matrices * width * as_double(m.hidden);
  }
  return elements;
}

TokenFlops token_flops(const Transformer& m, std::int64_t sequence_length) {
  TokenFlops flops;
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    flops.weights += 6 * active_matrix_elements(m, layer);
  }
  flops.attention = 6 * as_double(m.layers) * as_double(sequence_length) * attention_width(m);
  flops.head = 6 * as_double(m.vocabulary) * as_double(m.width);
  flops.norms = 6 * as_double(count_active_parameters(m).norms);
  return flops;
}

double model_flops_per_token(const Transformer& m, std::int64_t sequence_length,
                             FlopConvention convention) {
  const double s = as_double(sequence_length);
  const double l = as_double(m.layers);
  const double h = as_double(m.width);
  const double v = as_double(m.vocabulary);
  switch (convention) {
    case FlopConvention::matmul:
      return token_flops(m, sequence_length).model(false);
    case FlopConvention::causal:
      return token_flops(m, sequence_length).model(true);
    case FlopConvention::parameters: {
      const ParameterCount count = count_active_parameters(m);
      // A tied table is the head's weight, which every token meets; a look-up is no product.
      const double looked_up = as_double((m.tied_head ? 0 : count.embedding) + count.positions);
      return 6 * (as_double(count.total()) - looked_up);
    }
    case FlopConvention::palm:
      return 6 * as_double(count_active_parameters(m).total()) + 6 * l * s * attention_width(m);
    case FlopConvention::megatron:
      return 72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
    case FlopConvention::megatron_selective:
      return 72 * l * h * h * (1 + s / (3 * h) + v / (12 * l * h));
    case FlopConvention::megatron_full:
      return 96 * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  }
  return 0;
}

double hardware_flops_per_token(const Transformer& m, std::int64_t sequence_length,
                                Recompute recompute, bool causal) {
  const TokenFlops flops = token_flops(m, sequence_length);
  const double attention = flops.attention * (causal ? 0.5 : 1);
  double again = 0;
  if (recompute == Recompute::selective) {
    again = attention / 3;
  } else if (recompute == Recompute::full) {
    again = (flops.weights + attention) / 3;
  }
  return flops.model(causal) + again;
}

}  // namespace ringworld
