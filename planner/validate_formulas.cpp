// What follows from formulas: parameters, activations, bubbles, FLOPs.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "parallel/pipeline_simulation.h"
#include "planner/activations.h"
#include "planner/flops.h"
#include "planner/numbers.h"
#include "planner/validate.h"

namespace ringworld {
namespace {

// --- Parameters ----------------------------------------------------------------------------------

ValidationTable parameter_table() {
  ValidationTable table{
      .name = "Parameters",
      .source = "Narayanan et al., SC 2021, table 1; configurations of the releases",
      .unit = "billions",
      .note =
          "Megatron's are printed with one digit behind the point, the others "
          "are exact.",
      .kind = ValidationKind::exact,
      .rows = {}};
  constexpr std::pair<const char*, double> megatron[] = {
      {"megatron-1.7b", 1.7},   {"megatron-3.6b", 3.6},   {"megatron-7.5b", 7.5},
      {"megatron-18b", 18.4},   {"megatron-39b", 39.1},   {"megatron-76b", 76.1},
      {"megatron-145b", 145.6}, {"megatron-310b", 310.1}, {"megatron-530b", 529.6},
      {"megatron-1t", 1008.0}};
  for (const auto& [name, billions] : megatron) {
    table.rows.push_back(
        {.label = name,
         .published = billions,
         .ours = as_double(count_parameters(find_transformer(name)).total()) / giga,
         .tolerance = 0.0501});
  }
  constexpr std::pair<const char*, std::int64_t> exact[] = {{"gpt2", 124'439'808},
                                                            {"llama-2-7b", 6'738'415'616},
                                                            {"llama-2-70b", 68'976'648'192},
                                                            {"llama-3-8b", 8'030'261'248},
                                                            {"llama-3-70b", 70'553'706'496},
                                                            {"llama-3-405b", 405'853'388'800},
                                                            {"tinyllama-1.1b", 1'100'048'384},
                                                            {"qwen1.5-72b", 72'287'920'128},
                                                            {"qwen2.5-72b", 72'706'203'648}};
  for (const auto& [name, count] : exact) {
    table.rows.push_back(
        {.label = name,
         .published = as_double(count) / giga,
         .ours = as_double(count_parameters(find_transformer(name)).total()) / giga,
         .tolerance = 1e-12});
  }
  return table;
}

// --- Activations ---------------------------------------------------------------------------------

ValidationTable activation_table() {
  ValidationTable table{
      .name = "Activations of a layer",
      .source = "Korthikanti et al., 2022 (arXiv 2205.05198), table 2, for the models of table 3",
      .unit = "bytes",
      .note =
          "The formulas' values beside the sum of the planner's items, with the formulas' own "
          "assumptions: 16 bits, dropout, scores in memory.",
      .kind = ValidationKind::exact,
      .rows = {}};
  struct Row {
    const char* model;
    std::int64_t micro_batch;
  };
  constexpr Row rows[] = {
      {"korthikanti-22b", 4}, {"korthikanti-175b", 1}, {"megatron-530b", 1}, {"megatron-1t", 1}};
  for (const Row& row : rows) {
    const Transformer& model = find_transformer(row.model);
    const double s = 2048;
    const double b = as_double(row.micro_batch);
    const double h = as_double(model.width);
    const double a = as_double(model.heads);
    const double t = 8;
    const double sbh = s * b * h;
    struct Case {
      const char* name;
      bool tensor, sequence;
      Recompute recompute;
      double formula;
    };
    const Case cases[] = {
        {"whole", false, false, Recompute::none, sbh * (34 + 5 * a * s / h)},
        {"TP", true, false, Recompute::none, sbh * (10 + 24 / t + 5 * a * s / (h * t))},
        {"TP, SP", true, true, Recompute::none, sbh / t * (34 + 5 * a * s / h)},
        {"TP, selective", true, false, Recompute::selective, sbh * (10 + 24 / t)},
        {"TP, SP, selective", true, true, Recompute::selective, 34 * sbh / t},
        {"full", true, false, Recompute::full, 2 * sbh}};
    for (const Case& one : cases) {
      Layout layout;
      layout.tensor = one.tensor ? 8 : 1;
      layout.sequence_parallel = one.sequence;
      layout.recompute = one.recompute;
      layout.micro_batch = row.micro_batch;
      layout.sequence_length = 2048;
      const LayerActivations layer =
          layer_activations(model, layout, {.fused_attention = false, .dropout = true}, 0);
      table.rows.push_back({.label = fmt::format("{}, {}", row.model, one.name),
                            .published = one.formula,
                            .ours = as_double(kept_bytes(layer, layout)),
                            .tolerance = 0.5});
    }
  }
  return table;
}

// --- Bubbles -------------------------------------------------------------------------------------

ValidationTable bubble_table() {
  ValidationTable table{
      .name = "Pipeline bubbles",
      .source =
          "Narayanan et al., SC 2021, section 2.2; Qi et al., 2023 (arXiv 2401.10241), "
          "table 1, with the times of its table 6",
      .unit = "ms",
      .note =
          "The formulas' values beside idle time in the simulation of the schedule, without "
          "communication.",
      .kind = ValidationKind::exact,
      .rows = {}};
  struct Row {
    const char* model;
    int stages, micro_batches;
    double forward, input, weight;
  };
  constexpr Row rows[] = {
      {"1.5B", 8, 24, 18.522, 18.086, 9.337},    {"1.5B", 8, 32, 18.513, 18.086, 9.331},
      {"1.5B", 8, 64, 18.546, 18.097, 9.321},    {"6.2B", 8, 24, 29.718, 29.444, 19.927},
      {"6.2B", 8, 32, 29.802, 29.428, 19.530},   {"6.2B", 8, 64, 29.935, 29.621, 19.388},
      {"14.6B", 16, 48, 11.347, 11.248, 8.132},  {"14.6B", 16, 64, 11.307, 11.254, 8.101},
      {"14.6B", 16, 128, 11.325, 11.308, 8.109}, {"28.3B", 32, 96, 10.419, 10.207, 7.715},
      {"28.3B", 32, 128, 10.408, 10.204, 7.703}, {"28.3B", 32, 256, 10.402, 10.248, 7.698}};
  for (const Row& row : rows) {
    const PipelineTimes times{
        .forward = row.forward, .backward_input = row.input, .backward_weight = row.weight};
    const double whole = row.forward + row.input + row.weight;
    const double gaps = row.stages - 1;
    const std::tuple<const char*, int, double> kinds[] = {
        {"fill-drain", 1, gaps * whole},
        {"1f1b", 1, gaps * whole},
        {"interleaved-1f1b", 2, gaps * whole / 2},
        {"zb-h1", 1, gaps * (row.forward + row.input - row.weight)},
        {"zb-h2", 1, gaps * (row.forward + row.input - 2 * row.weight)}};
    for (const auto& [name, chunks, formula] : kinds) {
      const PipelineShape shape{
          .stages = row.stages, .micro_batches = row.micro_batches, .chunks = chunks};
      const PipelineTimeline timeline = simulate(emit_pipeline(find_pipeline(name), shape), times);
      table.rows.push_back({.label = fmt::format("{}, p {}, m {}, {}", row.model, row.stages,
                                                 row.micro_batches, name),
                            .published = formula,
                            .ours = timeline.idle_of_longest_stage().time,
                            .tolerance = 1e-9 * timeline.total});
    }
  }
  return table;
}

// --- FLOPs ---------------------------------------------------------------------------------------

ValidationTable days_table() {
  ValidationTable table{.name = "Days for 300B tokens",
                        .source = "Narayanan et al., SC 2021, table 2, from its TFLOP/s by Eq. 3",
                        .unit = "days",
                        .note = "Printed in whole days, from throughput in whole TFLOP/s.",
                        .kind = ValidationKind::exact,
                        .rows = {}};
  struct Row {
    const char* model;
    double gpus, tflops, days;
  };
  constexpr Row rows[] = {{"gpt3-175b", 384, 144, 90},      {"gpt3-175b", 768, 88, 74},
                          {"gpt3-175b", 1536, 44, 74},      {"megatron-530b", 640, 138, 169},
                          {"megatron-530b", 1120, 98, 137}, {"megatron-530b", 2240, 48, 140},
                          {"gpt3-175b", 384, 153, 84},      {"gpt3-175b", 768, 149, 43},
                          {"gpt3-175b", 1536, 141, 23},     {"megatron-530b", 560, 171, 156},
                          {"megatron-530b", 1120, 167, 80}, {"megatron-530b", 2240, 159, 42}};
  for (const Row& row : rows) {
    const double flops = 300e9 * model_flops_per_token(find_transformer(row.model), 2048,
                                                       FlopConvention::megatron_full);
    table.rows.push_back(
        {.label = fmt::format("{}, {} GPUs at {}", row.model, row.gpus, row.tflops),
         .published = row.days,
         .ours = flops / (row.gpus * row.tflops * 1e12) / 86400,
         .tolerance = 0.5 + 0.5 / row.tflops * row.days});
  }
  return table;
}

ValidationTable flops_table() {
  ValidationTable table{.name = "FLOPs",
                        .source = "Llama 3 paper, section 3; Korthikanti et al., section 5",
                        .unit = "FLOPs",
                        .note = "",
                        .kind = ValidationKind::exact,
                        .rows = {}};
  table.rows.push_back(
      {.label = "Llama 3 405B, 15.6T tokens, 6 N",
       .published = 3.8e25,
       .ours = 15.6e12 * 6 * as_double(count_parameters(find_transformer("llama-3-405b")).total()),
       .tolerance = 0.05e25});
  const std::pair<const char*, double> selective[] = {{"korthikanti-175b", 2.7},
                                                      {"megatron-530b", 1.6}};
  for (const auto& [name, percent] : selective) {
    const Transformer& model = find_transformer(name);
    const double without = model_flops_per_token(model, 2048, FlopConvention::megatron);
    const double with = model_flops_per_token(model, 2048, FlopConvention::megatron_selective);
    table.rows.push_back({.label = fmt::format("{}, selective recomputation adds %", name),
                          .published = percent,
                          .ours = 100 * (with / without - 1),
                          .tolerance = 0.051});
  }
  return table;
}

// --- GPT-2's sizing ------------------------------------------------------------------------------

ValidationTable nanogpt_table() {
  ValidationTable table{
      .name = "GPT-2 124M, sizing",
      .source = "Karpathy, nanoGPT, transformer_sizing.ipynb: 1024 tokens, no biases",
      .unit = "parameters or FLOPs",
      .note =
          "A block's norms count with what is behind them. Attention's scores and reduction "
          "are one number of ours, and so are the two halves of the feed-forward part. The "
          "notebook "
          "has had PaLM's formula both with the positions in N and without.",
      .kind = ValidationKind::exact,
      .rows = {}};
  const auto add = [&](const char* label, std::int64_t published, double ours) {
    table.rows.push_back(
        {.label = label, .published = as_double(published), .ours = ours, .tolerance = 0.5});
  };
  Transformer gpt2 = find_transformer("gpt2");
  gpt2.query_key_value_bias = false;
  gpt2.linear_bias = false;
  gpt2.norm = NormKind::rms;  // that is, norms without biases
  const ParameterCount count = count_parameters(gpt2);
  const LayerParameters block = layer_parameters(gpt2, 0);
  const double norm = as_double(block.norms) / 2;
  const double projection = as_double(gpt2.attention_width() * gpt2.width);
  const double attention = as_double(block.attention_split);
  const double mlp = as_double(block.mlp_split);
  add("parameters", 124'337'664, as_double(count.total()));
  add("parameters, positions", 786'432, as_double(count.positions));
  add("parameters, tokens", 38'597'376, as_double(count.embedding));
  add("parameters, block", 7'079'424, as_double(block.total()));
  add("parameters, attention", 2'360'064, norm + attention);
  add("parameters, feed-forward", 4'719'360, norm + mlp);

  const std::int64_t length = 1024;
  const double tokens = as_double(length);
  const double layers = as_double(gpt2.layers);
  const TokenFlops flops = token_flops(gpt2, length);
  // Of the three products of forward and backward, forward's.
  const double forward = tokens / 3;
  add("forward", 291'648'307'200, forward * flops.model(false));
  add("forward, transformer", 212'600'881'152, forward * (flops.weights + flops.attention));
  add("forward, head", 79'047'426'048, forward * flops.head);
  add("forward, block", 17'716'740'096, forward * (flops.weights + flops.attention) / layers);
  add("forward, queries, keys and values", 3'623'878'656, 2 * tokens * (attention - projection));
  add("forward, scores and reduction", 2 * std::int64_t{1'610'612'736},
      forward * flops.attention / layers);
  add("forward, projection", 1'207'959'552, 2 * tokens * projection);
  add("forward, feed-forward", 2 * std::int64_t{4'831'838'208}, 2 * tokens * mlp);
  add("forward and backward", 874'944'921'600,
      tokens * model_flops_per_token(gpt2, length, FlopConvention::matmul));
  const double palm = tokens * model_flops_per_token(gpt2, length, FlopConvention::palm);
  add("PaLM's formula", 879'894'724'608, palm);
  add("PaLM's formula, no positions in N", 875'062'886'400,
      palm - tokens * 6 * as_double(count.positions));
  return table;
}

}  // namespace

std::vector<ValidationTable> validate_formulas() {
  return {parameter_table(), activation_table(), bubble_table(),
          days_table(),      flops_table(),      nanogpt_table()};
}

}  // namespace ringworld
