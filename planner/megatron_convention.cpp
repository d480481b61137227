// What Megatron-LM's report of theoretical memory counts.
#include <algorithm>

#include <fmt/format.h>

#include "planner/conventions.h"

namespace ringworld {
namespace {

constexpr double mib = 1024.0 * 1024;

// Of all layers and the last norm. Biases are not in it.
double block_parameters(const Transformer& m) {
  const auto width = static_cast<double>(m.width);
  const double norm = m.norm == NormKind::layer ? 2 : 1;
  double attention = 0;
  if (m.latent) {
    const LatentAttention& latent = *m.latent;
    const auto heads = static_cast<double>(m.heads);
    const auto query_head = static_cast<double>(latent.plain_head + latent.rotary_head);
    const auto query_rank = static_cast<double>(latent.query_rank);
    attention = latent.query_rank == 0 ? width * heads * query_head
                                       : query_rank * (width + heads * query_head + norm);
    attention +=
        static_cast<double>(latent.key_value_rank) *
        (width + heads * static_cast<double>(latent.plain_head + latent.value_head) + norm);
    attention += width * static_cast<double>(latent.rotary_head);
    attention += heads * static_cast<double>(latent.value_head) * width;
  } else {
    attention = 2 * width * static_cast<double>((m.heads + m.kv_heads) * m.head_size);
  }
  const double matrices = m.gated_mlp ? 3 : 2;
  double sum = norm * width;
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    const std::int64_t hidden = m.has_experts(layer)
                                    ? (m.experts->count + m.experts->shared) * m.experts->hidden
                                    : m.hidden;
    sum += attention + matrices * width * static_cast<double>(hidden) + 2 * norm * width;
  }
  return sum;
}

}  // namespace

ConventionReport megatron_memory(const Transformer& m, const Layout& l, std::int64_t rows) {
  const auto width = static_cast<double>(m.width);
  const auto tensor = static_cast<double>(l.tensor);
  const auto pipeline = static_cast<double>(l.pipeline);
  const double table = static_cast<double>(rows) * width;
  double shard = (block_parameters(m) / pipeline + table) / tensor;
  if (!m.tied_head && l.pipeline == 1) {
    shard += table / tensor;
  }
  const bool distributed = l.sharding != Sharding::none;
  const double of_parameter = distributed ? 6 + 12 / static_cast<double>(l.data) : 18;

  const double tokens = static_cast<double>(l.sequence_length) * static_cast<double>(l.micro_batch);
  const bool first_formula = l.sequence_parallel && l.recompute == Recompute::selective;
  const auto layers = static_cast<double>(m.layers);
  double activations = first_formula
                           ? tokens * (18 * width + 4 * static_cast<double>(m.hidden)) * layers
                           : tokens * width * (10 + 24 / tensor) * layers;
  activations += 8 * tokens * pipeline + tokens * width * pipeline;
  if (l.chunks > 1) {
    activations *= 1 + (pipeline - 1) / (pipeline * static_cast<double>(l.chunks));
  } else if (l.pipeline > 1) {
    activations *= std::min(1.0, static_cast<double>(l.micro_batches()) / pipeline);
  }
  if (l.pipeline == 1) {
    activations += first_formula
                       ? tokens * width * 4 * (1 + static_cast<double>(rows) / width)
                       : 2 * (tokens * static_cast<double>(rows) / tensor + tokens * width);
  }
  activations = first_formula ? activations / tensor : activations * 1.05;

  ConventionReport report{
      .title = "Megatron-LM's report of theoretical memory, first stage",
      .letters = fmt::format("s tokens, b sequences, h width, ffn hidden, L layers, "
                             "t tensor, d data, and {} rows of the vocabulary",
                             rows),
      .unit = "MiB",
      .bytes_of_unit = mib,
      .rows = {},
      .differences = {}};
  report.rows.push_back(
      {.name = "weights and optimizer",
       .device = shard * of_parameter,
       .arithmetic = distributed ? fmt::format("{:.0f} parameters x (6 + 12 / {})", shard, l.data)
                                 : fmt::format("{:.0f} parameters x 18", shard)});
  report.rows.push_back({.name = "activations",
                         .device = activations,
                         .arithmetic = first_formula
                                           ? "s b (18 h + 4 ffn) L / t + embedding and head"
                                           : "s b h (10 + 24 / t) L + embedding and head, x 1.05"});
  report.total = shard * of_parameter + activations;
  report.differences = {
      "Biases, learned positions and the router are not among the parameters, and every stage has "
      "the mean number of layers; here each stage has its own.",
      "18 bytes for each parameter, or 6 + 12 / d where the optimizer is distributed: gradients "
      "in "
      "32 bits. Here gradients and weights are sharded, too, where that is asked for.",
      "Activations of full recomputation, fused attention, 32-bit training, experts and latent "
      "attention are those of a GPT that recomputes scores; gated feed-forward parts keep 4 bytes "
      "for each hidden element, not 6. Here each is counted.",
      "Nothing is gathered, and workspace and the libraries' own memory are not there."};
  return report;
}

}  // namespace ringworld
