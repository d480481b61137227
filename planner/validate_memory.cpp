// What follows from formulas of memory: ZeRO, its offload, and the estimators of DeepSpeed.
#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "planner/activations.h"
#include "planner/conventions.h"
#include "planner/flops.h"
#include "planner/memory.h"
#include "planner/numbers.h"
#include "planner/validate.h"

namespace ringworld {
namespace {

// --- ZeRO, table 1 -------------------------------------------------------------------------------

// A model of exactly so many parameters, for what depends on nothing else: one norm of one column,
// and a table.
Transformer of_parameters(double parameters) {
  return {.name = "parameters alone",
          .source = "",
          .width = 1,
          .heads = 1,
          .kv_heads = 1,
          .head_size = 1,
          .hidden = 1,
          .vocabulary = static_cast<std::int64_t>(parameters) - 1,
          .context = 1,
          .tied_head = true};
}

ValidationTable zero_table() {
  ValidationTable table{.name = "ZeRO, table 1",
                        .source = "Rajbhandari et al., SC 2020 (arXiv 1910.02054), table 1",
                        .unit = "GB",
                        .note = "The paper rounds some cells and cuts others off.",
                        .kind = ValidationKind::exact,
                        .rows = {}};
  struct Column {
    double billions;
    double tolerance;
    double cells[6][3];
  };
  constexpr Column columns[] = {{7.5,
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
  constexpr Sharding degrees[] = {Sharding::zero1, Sharding::zero2, Sharding::zero3};
  for (const Column& column : columns) {
    std::int64_t ranks = 1;
    for (const auto& cells : column.cells) {
      for (std::size_t degree = 0; degree < 3; ++degree) {
        Layout layout;
        layout.data = ranks;
        layout.sharding = degrees[degree];
        layout.sequence_length = 1;
        layout.gradient_precision = DType::bf16;
        const MemoryPlan plan = plan_memory(of_parameters(column.billions * giga), layout);
        table.rows.push_back({.label = fmt::format("{}B, DP {}, {}", column.billions, ranks,
                                                   name_of(degrees[degree])),
                              .published = cells[degree],
                              .ours = as_double(plan.worst().device.states().value) / giga,
                              .tolerance = std::max(column.tolerance, 0.003 * cells[degree])});
      }
      ranks *= 4;
    }
  }
  return table;
}

// --- DeepSpeed's estimators ----------------------------------------------------------------------

// T5 has an encoder, too, so it is counted here (Raffel et al., 2020; configurations of the
// releases): 24 layers of encoder and 24 of decoder of width C, which have a norm for each part and
// no biases; the decoder's have attention twice; one table of 32128 rows, two last norms, and
// either side's 32 relative positions of each head.
constexpr std::int64_t t5_width = 1024;
constexpr std::int64_t t5_table = 32128 * t5_width;  // the largest layer
constexpr std::int64_t t5_parameters(std::int64_t heads, std::int64_t head_size,
                                     std::int64_t hidden) {
  const std::int64_t attention = 4 * t5_width * heads * head_size + t5_width;
  const std::int64_t mlp = 2 * t5_width * hidden + t5_width;
  return 24 * (attention + mlp) + 24 * (2 * attention + mlp) + t5_table + 2 * t5_width +
         2 * 32 * heads;
}
constexpr std::int64_t t5_3b = t5_parameters(32, 128, 16384);
constexpr std::int64_t t5_large = t5_parameters(16, 64, 4096);
static_assert(t5_3b == 2'851'598'336 && t5_large == 737'668'096);

const ConventionRow& row_of(const ConventionReport& report, const char* name) {
  const auto row = std::ranges::find(report.rows, name, &ConventionRow::name);
  if (row == report.rows.end()) {
    throw std::out_of_range(name);
  }
  return *row;
}

ValidationTable estimator_table() {
  ValidationTable table{
      .name = "DeepSpeed's estimators",
      .source =
          "DeepSpeed, docs/code-docs/source/memory.rst: one node of 8 GPUs, T5-3B; and 2851M "
          "parameters, 32M of them in the largest layer",
      .unit = "GiB",
      .note =
          "DeepSpeed's arithmetic (planner/conventions.h), not our accounting. The print's 2851M "
          "and 32M of the live model are cut off: ours is with T5-3B's 2,851,598,336 and "
          "32,899,072.",
      .kind = ValidationKind::exact,
      .rows = {}};
  const auto add = [&](const char* model, const ConventionReport& report, const char* name,
                       double host, double device) {
    const ConventionRow& row = row_of(report, name);
    table.rows.push_back({.label = fmt::format("{}, {}, host", model, name),
                          .published = host,
                          .ours = *row.host / report.bytes_of_unit,
                          .tolerance = 0.005});
    table.rows.push_back({.label = fmt::format("{}, {}, GPU", model, name),
                          .published = device,
                          .ours = row.device / report.bytes_of_unit,
                          .tolerance = 0.005});
  };
  struct Row {
    const char* name;
    double live_host, live_device;
    double counted_host, counted_device;
  };
  constexpr Row rows[] = {{"zero2, optimizer offloaded", 127.48, 5.31, 127.45, 5.31},
                          {"zero2", 127.48, 15.93, 127.45, 15.93},
                          {"zero3, all offloaded, zero.Init", 71.71, 0.12, 71.69, 0.12},
                          {"zero3, all offloaded", 127.48, 0.12, 127.45, 0.12},
                          {"zero3, optimizer offloaded, zero.Init", 63.74, 0.79, 63.72, 0.78},
                          {"zero3, optimizer offloaded", 127.48, 0.79, 127.45, 0.78},
                          {"zero3, zero.Init", 1.47, 6.10, 1.43, 6.09},
                          {"zero3", 127.48, 6.10, 127.45, 6.09}};
  const ConventionReport live =
      deepspeed_memory({.parameters = t5_3b, .largest_layer = t5_table, .gpus_per_node = 8});
  const ConventionReport counted = deepspeed_memory(
      {.parameters = 2'851'000'000, .largest_layer = 32'000'000, .gpus_per_node = 8});
  for (const Row& row : rows) {
    add("T5-3B", live, row.name, row.live_host, row.live_device);
  }
  for (const Row& row : rows) {
    add("2851M", counted, row.name, row.counted_host, row.counted_device);
  }
  return table;
}

ValidationTable t5_large_table() {
  ValidationTable table{
      .name = "DeepSpeed's T5-large",
      .source = "DeepSpeed, docs/code-docs/source/memory.rst: ZeRO-3 on 4 GPUs",
      .unit = "MiB",
      .note =
          "The print cuts off what is behind the point. Of 737.67M and 32.90M parameters, exactly "
          "737,668,096 and 32,899,072.",
      .kind = ValidationKind::exact,
      .rows = {}};
  constexpr double mebi = 1024.0 * 1024;
  const ConventionReport report =
      deepspeed_memory({.parameters = t5_large, .largest_layer = t5_table, .gpus_per_node = 4});
  constexpr std::pair<const char*, double> rows[] = {
      {"zero3", 3291}, {"zero3, all offloaded", 125}, {"zero3, optimizer offloaded", 477}};
  for (const auto& [name, published] : rows) {
    table.rows.push_back({.label = name,
                          .published = published,
                          .ours = row_of(report, name).device / mebi,
                          .tolerance = 1});
  }
  return table;
}

// --- ZeRO-Offload --------------------------------------------------------------------------------

ItemBytes states_of(double parameters, DType gradients, PlannedOffload offload) {
  Layout layout;
  layout.sequence_length = 1;
  layout.gradient_precision = gradients;
  layout.offload = offload;
  return plan_memory(of_parameters(parameters), layout).worst().device;
}

ValidationTable offload_strategy_table() {
  ValidationTable table{
      .name = "ZeRO-Offload, strategies",
      .source = "Ren et al., 2021 (arXiv 2101.06840), table 1",
      .unit = "bytes on the GPU for each parameter",
      .note =
          "Those of its strategies that move the least. The planner has no offload of gradients "
          "alone: where they leave, its plan is taken without its item for them.",
      .kind = ValidationKind::exact,
      .rows = {}};
  struct Row {
    const char* name;
    PlannedOffload offload;
    bool gradients_leave;
    double published;
  };
  constexpr Row rows[] = {
      {"all on the GPU", PlannedOffload::none, false, 16},
      {"gradients on the host", PlannedOffload::none, true, 14},
      {"optimizer and master weights on the host", PlannedOffload::master, false, 4},
      {"these and gradients on the host", PlannedOffload::master, true, 2}};
  for (const Row& row : rows) {
    const ItemBytes items = states_of(giga, DType::bf16, row.offload);
    const Bytes left =
        row.gradients_leave ? items.states() - items[MemoryItem::gradients] : items.states();
    table.rows.push_back({.label = row.name,
                          .published = row.published,
                          .ours = as_double(left.value) / giga,
                          .tolerance = 1e-9});
  }
  return table;
}

ValidationTable offload_states_table() {
  ValidationTable table{
      .name = "ZeRO-Offload, states",
      .source = "Ren et al., 2021 (arXiv 2101.06840)",
      .unit = "GB",
      .note =
          "16 bytes for each parameter. 17.2B is as printed: 16 x 17.2 is 275.2; 284 would be "
          "17.75B.",
      .rows = {}};
  for (const auto& [billions, published] : {std::pair{8.0, 128.0}, {11.0, 176.0}, {17.2, 284.0}}) {
    const ItemBytes items = states_of(billions * giga, DType::bf16, PlannedOffload::none);
    table.rows.push_back({.label = fmt::format("{}B", billions),
                          .published = published,
                          .ours = as_double(items.states().value) / giga});
  }
  return table;
}

// --- ZeRO-Infinity -------------------------------------------------------------------------------

constexpr const char* infinity_models[] = {"gpt3-175b", "megatron-530b", "megatron-1t"};
constexpr std::int64_t infinity_sequence = 2048;

ValidationTable infinity_table() {
  ValidationTable table{
      .name = "ZeRO-Infinity, formulas",
      .source = "Rajbhandari et al., 2021 (arXiv 2104.07857), section 3",
      .unit = "GB",
      .note =
          "The formulas' values (240 nl hd^2, 2 bsz seq hd nl, 4 hd 4hd; one sequence of 2048, a "
          "checkpoint for each layer) beside the planner's: matrices alone, without biases, norms "
          "and tables. 20 bytes for each parameter are the planner's 18 with gradients in 32 bits "
          "and 2 for gradients in 16 bits besides. Working memory is there the largest matrix and "
          "its gradient; our own plans have two neighbouring units whole.",
      .kind = ValidationKind::exact,
      .rows = {}};
  const ItemBytes wide = states_of(giga, DType::f32, PlannedOffload::none);
  const ItemBytes narrow = states_of(giga, DType::bf16, PlannedOffload::none);
  const double bytes_of_parameter =
      as_double((wide.states() + narrow[MemoryItem::gradients]).value) / giga;
  const double of_weight_and_gradient =
      as_double((narrow[MemoryItem::weights] + narrow[MemoryItem::gradients]).value) / giga;
  for (const char* name : infinity_models) {
    Transformer model = find_transformer(name);
    model.linear_bias = false;
    const double layers = as_double(model.layers);
    const double width = as_double(model.width);
    Layout layout;
    layout.sequence_length = infinity_sequence;
    layout.recompute = Recompute::full;
    const LayerActivations layer = layer_activations(model, layout, {}, 0);
    const auto add = [&](const char* what, double published, double ours) {
      table.rows.push_back({.label = fmt::format("{}, {}", name, what),
                            .published = published / giga,
                            .ours = ours / giga,
                            .tolerance = 1e-9});
    };
    add("states", 240 * layers * width * width,
        layers * active_matrix_elements(model, 0) * bytes_of_parameter);
    add("checkpoints", 2 * as_double(infinity_sequence) * width * layers,
        layers * as_double(kept_bytes(layer, layout)));
    add("working memory of states", 4 * width * 4 * width,
        as_double(layer_parameters(model, 0).mlp_split) / 2 * of_weight_and_gradient);
  }
  return table;
}

ValidationTable infinity_activation_table() {
  ValidationTable table{
      .name = "ZeRO-Infinity, activations",
      .source = "Rajbhandari et al., 2021 (arXiv 2104.07857), section 3",
      .unit = "GB",
      .note =
          "The formula's bsz seq ci (16 hd + 2 heads seq), for one sequence of 2048, beside the "
          "planner's items of a layer that is recomputed, scores in memory, without dropout: 32 hd "
          "+ 2 heads seq. The paper's 16 hd leaves out half of what Korthikanti et al. (2022) "
          "list.",
      .rows = {}};
  for (const char* name : infinity_models) {
    const Transformer& model = find_transformer(name);
    Layout layout;
    layout.sequence_length = infinity_sequence;
    const LayerActivations layer =
        layer_activations(model, layout, {.fused_attention = false, .dropout = false}, 0);
    const double s = as_double(infinity_sequence);
    table.rows.push_back(
        {.label = name,
         .published = s * (16 * as_double(model.width) + 2 * as_double(model.heads) * s) / giga,
         .ours = as_double(whole_bytes(layer, layout)) / giga});
  }
  return table;
}

}  // namespace

std::vector<ValidationTable> validate_memory() {
  return {zero_table(),
          estimator_table(),
          t5_large_table(),
          offload_strategy_table(),
          offload_states_table(),
          infinity_table(),
          infinity_activation_table()};
}

}  // namespace ringworld
