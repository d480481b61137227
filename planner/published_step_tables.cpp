// The published tables: models, layouts and programs as far as their authors tell them.
#include <array>

#include <fmt/format.h>

#include "planner/numbers.h"
#include "planner/published_steps.h"

namespace ringworld {
namespace {

// --- Megatron-LM and DeepSpeed, 2021: A100 -------------------------------------------------------

// Scores in memory, dropout, and no overlap: as the programs of 2021 did it.
constexpr Software megatron_2021{.flash = false,
                                 .dropout = true,
                                 .overlap_data = false,
                                 .overlap_tensor = false,
                                 .overlap_pipeline = false};
// As ZeRO-3 of DeepSpeed in the same table.
constexpr Software zero3_2021{.flash = false,
                              .dropout = true,
                              .overlap_data = true,
                              .overlap_tensor = false,
                              .flat_gather = true};
// MT-NLG: DeepSpeed's pipeline of 2021, which sends whole activations, one message at a time.
constexpr Software deepspeed_2021{.flash = false,
                                  .dropout = true,
                                  .overlap_data = false,
                                  .overlap_tensor = false,
                                  .overlap_pipeline = false,
                                  .cut_messages = false,
                                  .paired_messages = false};

Layout gpt_layout(std::int64_t data, std::int64_t tensor, std::int64_t pipeline,
                  std::int64_t micro_batch, std::int64_t global_batch) {
  Layout layout;
  layout.data = data;
  layout.tensor = tensor;
  layout.pipeline = pipeline;
  layout.micro_batch = micro_batch;
  layout.global_batch = global_batch;
  layout.sequence_length = 2048;
  layout.precision = DType::f16;
  layout.gradient_precision = DType::f16;
  layout.recompute = Recompute::full;
  return layout;
}

// With every number of chunks that divides the layers evenly, as Megatron-LM demands.
std::vector<Layout> with_every_chunking(const Transformer& model, const Layout& layout) {
  std::vector<Layout> layouts;
  for (std::int64_t chunks = 1; chunks * layout.pipeline <= model.layers; ++chunks) {
    Layout one = layout;
    one.chunks = chunks;
    one.schedule = chunks > 1 ? "interleaved-1f1b" : "1f1b";
    if (model.layers % (layout.pipeline * chunks) == 0 && refusal(one, model).empty()) {
      layouts.push_back(one);
    }
  }
  return layouts;
}

PublishedStepTable megatron_table_1() {
  PublishedStepTable table{
      .name = "Megatron-LM, table 1",
      .source = "Narayanan et al., SC 2021 (arXiv 2104.04473), table 1: A100-80GB",
      .note =
          "TFLOP/s and GPU with recomputation (Eq. 3). Micro-batch and chunks are not told: the "
          "planner's fastest of 1, 2, 4, 8 and of the even divisions that fits.",
      .required = true,
      .fitted = true,
      .rows = {}};
  struct Row {
    const char* model;
    std::int64_t data, tensor, pipeline, batch;
    double value;
  };
  constexpr Row rows[] = {
      {"megatron-1.7b", 32, 1, 1, 512, 137},  {"megatron-3.6b", 32, 2, 1, 512, 138},
      {"megatron-7.5b", 32, 4, 1, 512, 142},  {"megatron-18b", 32, 8, 1, 1024, 135},
      {"megatron-39b", 32, 8, 2, 1536, 138},  {"megatron-76b", 32, 8, 4, 1792, 140},
      {"megatron-145b", 24, 8, 8, 2304, 148}, {"megatron-310b", 15, 8, 16, 2160, 155},
      {"megatron-530b", 9, 8, 35, 2520, 163}, {"megatron-1t", 6, 8, 64, 3072, 163}};
  for (const Row& row : rows) {
    PublishedStep step{
        .label = fmt::format("{}, {} GPUs", row.model, row.data * row.tensor * row.pipeline),
        .model = row.model,
        .machine = "A100-80GB",
        .software = megatron_2021,
        .layouts = {},
        .measure = ThroughputMeasure::megatron_full_tflops,
        .value = row.value};
    for (const std::int64_t micro_batch : {1, 2, 4, 8}) {
      if (row.batch % (row.data * micro_batch) == 0) {
        const Layout one = gpt_layout(row.data, row.tensor, row.pipeline, micro_batch, row.batch);
        for (const Layout& layout : with_every_chunking(find_transformer(row.model), one)) {
          step.layouts.push_back(layout);
        }
      }
    }
    table.rows.push_back(std::move(step));
  }
  return table;
}

PublishedStepTable megatron_table_2() {
  PublishedStepTable table{
      .name = "Megatron-LM, table 2",
      .source = "Narayanan et al., SC 2021 (arXiv 2104.04473), table 2: A100-80GB",
      .note =
          "As table 1, micro-batch as printed. How ZeRO-3 communicates (Software::flat_gather) "
          "is inferred from these very rows, which have no number of their own for it.",
      .required = true,
      .fitted = true,
      .rows = {}};
  struct Row {
    const char* model;
    std::int64_t data, tensor, pipeline, micro_batch, batch;
    double value;
  };
  constexpr Row rows[] = {
      {"gpt3-175b", 384, 1, 1, 4, 1536, 144},     {"gpt3-175b", 768, 1, 1, 2, 1536, 88},
      {"gpt3-175b", 1536, 1, 1, 1, 1536, 44},     {"megatron-530b", 640, 1, 1, 4, 2560, 138},
      {"megatron-530b", 1120, 1, 1, 2, 2240, 98}, {"megatron-530b", 2240, 1, 1, 1, 2240, 48},
      {"gpt3-175b", 4, 8, 12, 1, 1536, 153},      {"gpt3-175b", 8, 8, 12, 1, 1536, 149},
      {"gpt3-175b", 16, 8, 12, 1, 1536, 141},     {"megatron-530b", 2, 8, 35, 1, 2240, 171},
      {"megatron-530b", 4, 8, 35, 1, 2240, 167},  {"megatron-530b", 8, 8, 35, 1, 2240, 159}};
  for (const Row& row : rows) {
    const bool zero3 = row.tensor == 1;
    Layout layout = gpt_layout(row.data, row.tensor, row.pipeline, row.micro_batch, row.batch);
    layout.sharding = zero3 ? Sharding::zero3 : Sharding::none;
    table.rows.push_back({.label = fmt::format("{} {}, {} GPUs", zero3 ? "ZeRO-3" : "PTD-P",
                                               row.model, layout.gpus()),
                          .model = row.model,
                          .machine = "A100-80GB",
                          .software = zero3 ? zero3_2021 : megatron_2021,
                          .layouts = with_every_chunking(find_transformer(row.model), layout),
                          .measure = ThroughputMeasure::megatron_full_tflops,
                          .value = row.value});
  }
  return table;
}

PublishedStepTable mt_nlg() {
  PublishedStepTable table{
      .name = "MT-NLG",
      .source = "Smith et al., 2022 (arXiv 2201.11990), section 3.2: A100-80GB",
      .note = "TFLOP/s and GPU with recomputation. 1F1B without chunks, 32-bit gradients.",
      .required = true,
      .fitted = true,
      .rows = {}};
  constexpr std::pair<std::int64_t, double> rows[] = {{8, 126}, {10, 121}, {12, 113}};
  for (const auto& [data, value] : rows) {
    Layout layout = gpt_layout(data, 8, 35, 1, 1920);
    layout.precision = DType::bf16;
    layout.gradient_precision = DType::f32;
    table.rows.push_back({.label = fmt::format("530B, {} GPUs", layout.gpus()),
                          .model = "mt-nlg-530b",
                          .machine = "A100-80GB",
                          .software = deepspeed_2021,
                          .layouts = {layout},
                          .measure = ThroughputMeasure::megatron_full_tflops,
                          .value = value});
  }
  return table;
}

// --- Llama 3 and torchtitan: H100
// -----------------------------------------------------------------

Layout llama_layout(std::int64_t data, std::int64_t tensor, std::int64_t context,
                    std::int64_t pipeline, std::int64_t chunks, std::int64_t batch_of_rank,
                    std::int64_t length) {
  Layout layout;
  layout.data = data;
  layout.tensor = tensor;
  layout.context = context;
  layout.pipeline = pipeline;
  layout.chunks = chunks;
  layout.schedule = chunks > 1 ? "interleaved-1f1b" : "1f1b";
  layout.sequence_parallel = tensor > 1;
  layout.sharding = Sharding::zero1;
  layout.micro_batch = 1;
  layout.global_batch = data * batch_of_rank;
  layout.sequence_length = length;
  return layout;
}

PublishedStepTable llama3_table_4() {
  PublishedStepTable table{
      .name = "Llama 3 405B, table 4",
      .source = "Dubey et al., 2024 (arXiv 2407.21783), table 4: H100-80GB",
      .note =
          "TFLOP/s and GPU; that attention counts by the positions a token may see is assumed. "
          "No recomputation; gradients are reduced once a step; seven chunks of one or two "
          "layers.",
      .required = true,
      .fitted = true,
      .rows = {}};
  struct Row {
    std::int64_t data, context, batch_of_rank, length;
    double value;
  };
  // The first version of the paper prints 4 for the last row's 8 data-parallel ranks.
  constexpr Row rows[] = {
      {64, 1, 32, 8192, 430}, {128, 1, 16, 8192, 400}, {8, 16, 16, 131072, 380}};
  for (const Row& row : rows) {
    const Layout layout =
        llama_layout(row.data, 8, row.context, 16, 7, row.batch_of_rank, row.length);
    table.rows.push_back({.label = fmt::format("{} GPUs, sequence {}", layout.gpus(), row.length),
                          .model = "llama-3-405b",
                          .machine = "H100-80GB",
                          .software = {},
                          .layouts = {layout},
                          .measure = ThroughputMeasure::causal_tflops,
                          .value = row.value});
  }
  return table;
}

PublishedStepTable torchtitan() {
  PublishedStepTable table{
      .name = "torchtitan, Llama 3.1",
      .source = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: H100-96GB, 500 W",
      .note =
          "Tokens per second and GPU, compiled where printed. At 8B it recomputes every second "
          "matrix product, which is planned as none: ours is up to a sixth too fast for it.",
      .fitted = true,
      .rows = {}};
  const auto add = [&](std::string label, std::string model, Layout layout, Recompute recompute,
                       std::int64_t micro_batch, double value) {
    layout.recompute = recompute;
    layout.global_batch = layout.global_batch * micro_batch;
    layout.micro_batch = micro_batch;
    table.rows.push_back({.label = std::move(label),
                          .model = std::move(model),
                          .machine = "H100-96GB",
                          .software = {},
                          .layouts = {layout},
                          .measure = ThroughputMeasure::tokens,
                          .value = value});
  };
  Layout fsdp8 = llama_layout(8, 1, 1, 1, 1, 1, 8192);
  fsdp8.sharding = Sharding::zero3;
  add("8B, 8 GPUs", "llama-3-8b", fsdp8, Recompute::none, 2, 6667);
  Layout fsdp128 = llama_layout(128, 1, 1, 1, 1, 1, 8192);
  fsdp128.sharding = Sharding::zero3;
  add("8B, 128 GPUs", "llama-3-8b", fsdp128, Recompute::none, 2, 6514);
  Layout fsdp_tp = llama_layout(32, 8, 1, 1, 1, 1, 8192);
  fsdp_tp.sharding = Sharding::zero3;
  add("70B, 256 GPUs", "llama-3-70b", fsdp_tp, Recompute::full, 16, 829);
  add("405B, 512 GPUs, 1F1B", "llama-3-405b", llama_layout(8, 8, 1, 8, 1, 32, 8192),
      Recompute::full, 1, 100);
  add("405B, 512 GPUs, interleaved", "llama-3-405b", llama_layout(8, 8, 1, 8, 2, 32, 8192),
      Recompute::full, 1, 128);
  return table;
}

PublishedStepTable llama_65b() {
  PublishedStepTable table{
      .name = "LLaMA 65B",
      .source = "Touvron et al., 2023 (arXiv 2302.13971), section 2.4: 2,048 A100-80GB",
      .note =
          "Tokens per second and GPU. The layout is not told: the planner's fastest of TP 1 to 8, "
          "PP 1 to 4, with and without recomputation and sharded weights. Nothing is fitted.",
      .rows = {}};
  PublishedStep step{.label = "4M tokens a step",
                     .model = "llama-65b",
                     .machine = "A100-80GB",
                     .software = {},
                     .layouts = {},
                     .measure = ThroughputMeasure::tokens,
                     .value = 380};
  for (const std::int64_t tensor : {1, 2, 4, 8}) {
    for (const std::int64_t pipeline : {1, 2, 4}) {
      for (const Sharding sharding : {Sharding::zero1, Sharding::zero3}) {
        for (const Recompute recompute : all_recomputes) {
          Layout layout = llama_layout(2048 / tensor / pipeline, tensor, 1, pipeline, 1, 1, 2048);
          layout.global_batch = 2048;
          layout.sharding = sharding;
          layout.recompute = recompute;
          if (refusal(layout, find_transformer(step.model)).empty()) {
            step.layouts.push_back(layout);
          }
        }
      }
    }
  }
  table.rows.push_back(std::move(step));
  return table;
}

// --- FSDP: predictions that nothing is fitted to
// --------------------------------------------------

PublishedStepTable fsdp_blog() {
  PublishedStepTable table{
      .name = "FSDP, IBM and Meta",
      .source =
          "Maximizing training throughput using PyTorch FSDP, PyTorch blog, March 2024: "
          "128 A100-80GB at 400 Gb/s, 96 H100-80GB at 800 Gb/s to a node",
      .note =
          "Tokens per second and GPU. Nothing is fitted to these rows. On H100 the authors found "
          "their own program far from what the device can do.",
      .rows = {}};
  struct Row {
    const char* model;
    Recompute recompute;
    double a100, h100;
  };
  constexpr Row rows[] = {{"llama-2-7b", Recompute::none, 3700, 7500},
                          {"llama-2-13b", Recompute::selective, 1800, 3800},
                          {"llama-2-70b", Recompute::full, 370, 800}};
  for (const bool h100 : {false, true}) {
    for (const Row& row : rows) {
      Layout layout = llama_layout(h100 ? 96 : 128, 1, 1, 1, 1, 2, 4096);
      layout.micro_batch = 2;
      layout.sharding = Sharding::zero3;
      layout.recompute = row.recompute;
      table.rows.push_back(
          {.label = fmt::format("{}, {}", row.model, h100 ? "96 H100" : "128 A100"),
           .model = row.model,
           .machine = h100 ? "H100-80GB" : "A100-80GB",
           .between = (h100 ? 96 : 48) * giga / 8,
           .software = {},
           .layouts = {layout},
           .measure = ThroughputMeasure::tokens,
           .value = h100 ? row.h100 : row.a100});
    }
  }
  return table;
}

PublishedStepTable fsdp_paper() {
  PublishedStepTable table{
      .name = "FSDP paper, GPT-175B",
      .source = "Zhao et al., 2023 (arXiv 2304.11277), section 5.4: A100-80GB, 2 Tb/s to a node",
      .note = "TFLOP/s and GPU with recomputation, taken as Eq. 3; 128 GPUs, attention not fused.",
      .rows = {}};
  constexpr std::pair<std::int64_t, double> rows[] = {{1, 173}, {2, 186}};
  for (const auto& [micro_batch, value] : rows) {
    Layout layout = gpt_layout(128, 1, 1, micro_batch, 128 * micro_batch);
    layout.precision = DType::bf16;
    layout.gradient_precision = DType::bf16;
    layout.sharding = Sharding::zero3;
    table.rows.push_back({.label = fmt::format("batch {}", micro_batch),
                          .model = "gpt3-175b",
                          .machine = "A100-80GB",
                          .between = 240 * giga / 8,
                          .software = {.flash = false},
                          .layouts = {layout},
                          .measure = ThroughputMeasure::megatron_full_tflops,
                          .value = value});
  }
  return table;
}

}  // namespace

const std::vector<PublishedStepTable>& published_step_tables() {
  static const std::vector<PublishedStepTable> tables = {
      megatron_table_1(), megatron_table_2(), mt_nlg(),     llama3_table_4(),
      torchtitan(),       fsdp_blog(),        fsdp_paper(), llama_65b()};
  return tables;
}

}  // namespace ringworld
