// The published accounting, against the papers' tables and formulas.
#include "planner/memory.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

// A model of exactly so many parameters: a table and a norm of one column.
Transformer of_parameters(std::int64_t parameters) {
  return {.name = "parameters alone",
          .source = "test",
          .layers = 0,
          .width = 1,
          .heads = 1,
          .kv_heads = 1,
          .head_size = 1,
          .hidden = 1,
          .vocabulary = parameters - 1,
          .context = 1,
          .tied_head = true};
}

// --- ZeRO
// ----------------------------------------------------------------------------------------

// Rajbhandari et al., SC 2020, table 1: GB per device, with 16-bit gradients (K = 12). The paper
// rounds some cells and truncates others.
struct ZeroColumn {
  double billions;
  double tolerance;    // GB; or 0.3 %
  double cells[6][3];  // DP 1, 4, 16, 64, 256, 1024 by P_os, P_os+g, P_os+g+p
};
const ZeroColumn zero_table[] = {{7.5,
                                  0.06,
                                  {{120, 120, 120},
                                   {52.5, 41.3, 30},
                                   {35.6, 21.6, 7.5},
                                   {31.4, 16.6, 1.88},
                                   {30.4, 15.4, 0.47},
                                   {30.1, 15.1, 0.12}}},
                                 {128,
                                  0.75,
                                  {{2048, 2048, 2048},
                                   {896, 704, 512},
                                   {608, 368, 128},
                                   {536, 284, 32},
                                   {518, 263, 8},
                                   {513, 257, 2}}},
                                 {1000,
                                  1.0,
                                  {{16000, 16000, 16000},
                                   {7000, 5500, 4000},
                                   {4750, 2875, 1000},
                                   {4187, 2218, 250},
                                   {4046, 2054, 62.5},
                                   {4011, 2013, 15.6}}}};

TEST(Zero, StatesAreThoseOfTableOne) {
  const Sharding degrees[] = {Sharding::zero1, Sharding::zero2, Sharding::zero3};
  for (const ZeroColumn& column : zero_table) {
    const auto parameters = static_cast<std::int64_t>(column.billions * 1e9);
    std::int64_t ranks = 1;
    for (const auto& row : column.cells) {
      for (int degree = 0; degree < 3; ++degree) {
        const Layout layout{.data = ranks,
                            .sharding = degrees[degree],
                            .sequence_length = 1,
                            .gradient_precision = DType::bf16};
        const MemoryPlan plan = plan_memory(of_parameters(parameters), layout);
        const double gigabytes = static_cast<double>(plan.worst().device.states().value) / 1e9;
        const double tolerance = std::max(column.tolerance, 0.003 * row[degree]);
        EXPECT_NEAR(gigabytes, row[degree], tolerance)
            << column.billions << "B over " << ranks << ", " << name_of(degrees[degree]);
      }
      ranks *= 4;
    }
  }
}

TEST(Zero, StatesAreTheFormulasToTheByte) {
  constexpr std::int64_t parameters = 7'500'000'000;
  constexpr std::int64_t ranks = 64;
  const auto states = [&](Sharding sharding) {
    const Layout layout{.data = ranks,
                        .sharding = sharding,
                        .sequence_length = 1,
                        .gradient_precision = DType::bf16};
    return plan_memory(of_parameters(parameters), layout).worst().device.states().value;
  };
  EXPECT_EQ(states(Sharding::none), 16 * parameters);
  EXPECT_EQ(states(Sharding::zero1), 4 * parameters + 12 * parameters / ranks);
  EXPECT_EQ(states(Sharding::zero2), 2 * parameters + 14 * parameters / ranks);
  EXPECT_EQ(states(Sharding::zero3), 16 * parameters / ranks);
}

// Ren et al., ZeRO-Offload, ATC 2021: 4M bytes stay with 32-bit state offloaded, and 2M with
// gradients beside it, which a plan keeps.
TEST(Offload, TakesItemsToTheTier) {
  Layout layout{.sequence_length = 1, .gradient_precision = DType::bf16};
  constexpr std::int64_t parameters = 1'000'000;
  layout.offload = PlannedOffload::master;
  const StageMemory host = plan_memory(of_parameters(parameters), layout).worst();
  EXPECT_EQ(host.device.states(), Bytes(4 * parameters));
  EXPECT_EQ(host.host.states(), Bytes(12 * parameters));
  layout.offload_to_file = true;
  const StageMemory file = plan_memory(of_parameters(parameters), layout).worst();
  EXPECT_EQ(file.host.states(), Bytes(0));
  EXPECT_EQ(file.file.states(), Bytes(12 * parameters));
  layout.offload = PlannedOffload::optimizer;
  EXPECT_EQ(plan_memory(of_parameters(parameters), layout).worst().device.states(),
            Bytes(8 * parameters));
}

// --- Activations
// ---------------------------------------------------------------------------------

constexpr ActivationOptions papers{.fused_attention = false, .dropout = true};

// Korthikanti et al., 2022, table 2 and section 4.
TEST(Activations, AreThePapersFormulas) {
  for (const char* name : {"gpt2", "gpt3-175b", "korthikanti-22b", "mt-nlg-530b", "megatron-1t"}) {
    const Transformer& m = find_transformer(name);
    const std::int64_t s = m.context;
    const std::int64_t h = m.width;
    const std::int64_t a = m.heads;
    for (const std::int64_t b : {1, 4}) {
      for (const std::int64_t t : {1, 2, 4}) {
        const auto bytes = [&](bool sequence_parallel, Recompute recompute) {
          const Layout layout{.tensor = t,
                              .sequence_parallel = sequence_parallel,
                              .micro_batch = b,
                              .sequence_length = s,
                              .recompute = recompute};
          return kept_bytes(layer_activations(m, layout, papers, 0), layout);
        };
        const std::int64_t sbh = s * b * h;
        const std::int64_t scores = 5 * a * s * s * b;
        EXPECT_EQ(bytes(false, Recompute::none), 10 * sbh + (24 * sbh + scores) / t) << name;
        EXPECT_EQ(bytes(false, Recompute::selective), 10 * sbh + 24 * sbh / t) << name;
        EXPECT_EQ(bytes(false, Recompute::full), 2 * sbh) << name;
        EXPECT_EQ(bytes(true, Recompute::none), (34 * sbh + scores) / t) << name;
        EXPECT_EQ(bytes(true, Recompute::selective), 34 * sbh / t) << name;
        EXPECT_EQ(bytes(true, Recompute::full), 2 * sbh / t) << name;
      }
    }
  }
}

TEST(Activations, OfOneLayerOfGpt2) {
  const Transformer& gpt2 = find_transformer("gpt2");
  const auto bytes = [&](Layout layout) {
    layout.sequence_length = 1024;
    return kept_bytes(layer_activations(gpt2, layout, papers, 0), layout);
  };
  EXPECT_EQ(bytes({}), 89'653'248);
  EXPECT_EQ(bytes({.tensor = 2}), 48'758'784);
  EXPECT_EQ(bytes({.tensor = 2, .sequence_parallel = true}), 44'826'624);
  EXPECT_EQ(bytes({.recompute = Recompute::full}), 1'572'864);
}

// Section 4.2.2: the first stage holds p micro-batches of L / p layers, with v chunks 1 + (p - 1)
// / (p v) times as many, and a byte of the embedding's mask for each of p micro-batches.
TEST(Activations, OfAPipelinesFirstStage) {
  struct Row {
    const char* model;
    std::int64_t pipeline, chunks, batch;
  };
  for (const Row& row : {Row{"gpt3-175b", 8, 3, 64}, Row{"mt-nlg-530b", 35, 3, 280},
                         Row{"megatron-1t", 64, 1, 512}}) {
    const Transformer& m = find_transformer(row.model);
    const Layout layout{.tensor = 8,
                        .pipeline = row.pipeline,
                        .chunks = row.chunks,
                        .sequence_parallel = true,
                        .schedule = row.chunks == 1 ? "1f1b" : "interleaved-1f1b",
                        .global_batch = row.batch,
                        .sequence_length = 2048};
    ASSERT_EQ(refusal(layout, m), "");
    const MemoryPlan plan = plan_memory(m, layout, {.activations = papers});
    const std::int64_t sbh = 2048 * m.width;
    const std::int64_t layer = (34 * sbh + 5 * m.heads * 2048 * 2048) / 8;
    const std::int64_t p = row.pipeline;
    const std::int64_t v = row.chunks;
    const std::int64_t live = v == 1 ? p : p * v + p - 1;  // chunks
    const std::int64_t mask = (sbh / 8 * live + v - 1) / v;
    EXPECT_EQ(plan.stages[0].device[MemoryItem::activations].value,
              layer * m.layers / (p * v) * live + mask)
        << row.model;
  }
}

// Section 4.3: without a pipeline, 4 s b h (1 + V / h) / t for the last norm, the head's input and
// its logits.
TEST(Activations, OfTheHead) {
  const Transformer& m = find_transformer("korthikanti-22b");
  const Layout layout{
      .tensor = 8, .sequence_parallel = true, .micro_batch = 4, .sequence_length = 2048};
  const StageMemory stage = plan_memory(m, layout, {.activations = papers}).worst();
  const std::int64_t sbh = 2048 * 4 * m.width;
  const std::int64_t layers = m.layers * (34 * sbh + 5 * m.heads * 2048 * 2048 * 4) / 8;
  EXPECT_EQ(stage.device[MemoryItem::activations] + stage.device[MemoryItem::logits],
            Bytes(layers + sbh / 8 + (4 * sbh + 4 * 2048 * 4 * m.vocabulary) / 8));
}

// Fused attention keeps a number for each row instead of scores; without dropout there are no
// masks.
TEST(Activations, WithoutScoresAndMasks) {
  const Transformer& m = find_transformer("gpt2");
  const Layout layout{.sequence_length = 1024};
  EXPECT_EQ(kept_bytes(layer_activations(m, layout, {}, 0), layout), (32 * 768 + 4 * 12) * 1024);
}

// --- Stages
// --------------------------------------------------------------------------------------

TEST(Stages, TheFullestIsNamedAndTheyAddUpToTheModel) {
  Transformer m = find_transformer("llama-2-7b");
  m.layers = 8;
  const Layout layout{
      .pipeline = 4, .stage_layers = {1, 2, 2, 3}, .global_batch = 4, .sequence_length = 128};
  ASSERT_EQ(refusal(layout, m), "");
  const MemoryPlan plan = plan_memory(m, layout);
  std::int64_t parameters = 0;
  for (const StageMemory& stage : plan.stages) {
    parameters += stage.parameters;
  }
  EXPECT_EQ(parameters, count_parameters(m).total());
  const std::int64_t table = m.vocabulary * m.width;
  const std::int64_t layer = layer_parameters(m, 0).total();
  EXPECT_EQ(plan.stages[0].parameters, layer + table);
  EXPECT_EQ(plan.stages[1].parameters, 2 * layer);
  EXPECT_EQ(plan.stages[3].parameters, 3 * layer + table + m.width);
  EXPECT_EQ(plan.fullest, 3u);
  // The mean would be two layers.
  EXPECT_GT(plan.worst().parameters, parameters / 4);
}

TEST(Stages, ATiedTableIsOnBothEnds) {
  const Transformer& m = find_transformer("gpt2");
  const Layout layout{.pipeline = 2, .global_batch = 2, .sequence_length = 64};
  const MemoryPlan plan = plan_memory(m, layout);
  EXPECT_EQ(plan.stages[0].parameters + plan.stages[1].parameters,
            count_parameters(m).total() + m.vocabulary * m.width);
}

TEST(Tensor, SplitsWhatCanBeSplit) {
  const Transformer& m = find_transformer("gpt2");
  const Layout layout{.tensor = 2, .sequence_length = 64};
  const LayerParameters layer = layer_parameters(m, 0);
  const std::int64_t rows = (m.vocabulary + 1) / 2;
  EXPECT_EQ(plan_memory(m, layout).worst().parameters,
            m.layers * (layer.attention_whole + layer.mlp_whole + layer.norms +
                        (layer.attention_split + layer.mlp_split) / 2) +
                (rows + m.context) * m.width + 2 * m.width);
}

// Llama 3 70B has 8 heads of keys and values: over 16 ranks, each has a copy of one.
TEST(Tensor, CopiesHeadsOfKeysAndValues) {
  const Transformer& m = find_transformer("llama-3-70b");
  const auto parameters = [&](std::int64_t tensor) {
    return tensor * plan_memory(m, {.tensor = tensor, .sequence_length = 64}).worst().parameters;
  };
  const std::int64_t norms = (2 * m.layers + 1) * m.width;
  EXPECT_EQ(parameters(16) - parameters(8), 8 * norms + m.layers * 2 * 8 * m.head_size * m.width);
}

TEST(Experts, AreSpreadOverDataRanksAndShardedOverTheOthers) {
  const Transformer& m = find_transformer("mixtral-8x7b");
  const auto stage = [&](std::int64_t expert) {
    return plan_memory(
               m, {.data = 8, .expert = expert, .sharding = Sharding::zero1, .sequence_length = 64})
        .worst();
  };
  const std::int64_t experts = m.layers * layer_parameters(m, 0).experts;
  EXPECT_EQ(stage(1).parameters - stage(8).parameters, experts / 8 * 7);
  // Either way an eighth of the moments is on each rank.
  EXPECT_EQ(stage(1).device[MemoryItem::moments], stage(8).device[MemoryItem::moments]);
}

// The configuration's precision is not the plan's: 32 bits are twice 16.
TEST(Precision, IsTheOneAskedFor) {
  const Transformer& m = find_transformer("llama-3-8b");
  const auto weights = [&](DType precision) {
    const Layout layout{.sequence_length = 64, .precision = precision};
    return plan_memory(m, layout).worst().device[MemoryItem::weights];
  };
  EXPECT_EQ(weights(DType::f32), 2 * weights(DType::bf16));
  EXPECT_EQ(weights(DType::bf16), Bytes(2 * 8'030'261'248));
}

}  // namespace
}  // namespace ringworld
