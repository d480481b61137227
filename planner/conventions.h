// Memory as other calculators work it out, number for number, with every factor named: to compare
// with what they print, not to plan by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/layout.h"
#include "planner/transformer.h"

namespace ringworld {

struct ConventionRow {
  std::string name;
  double device = 0;                // bytes of one GPU
  std::optional<double> host = {};  // bytes of one node
  std::string arithmetic;           // "18 P / 8 + 4 L"
};

struct ConventionReport {
  std::string title;
  std::string letters;  // what the arithmetic's stand for
  std::string unit;     // "GB", "GiB" or "MiB": what the calculator prints
  double bytes_of_unit = 1e9;
  std::vector<ConventionRow> rows;
  // What the rows add up to; none: they are alternatives.
  std::optional<double> total = {};
  std::vector<std::string> differences;  // where our own accounting counts otherwise
};

// --- The lesson
// ----------------------------------------------------------------------------------

struct LessonShape {
  std::int64_t sequence_length;
  std::int64_t batch;
  std::int64_t hidden;
  std::int64_t layers;
};
struct LessonQuestion {
  std::int64_t parameters = 0;
  std::int64_t precision_bytes = 2;
  std::int64_t optimizer_bytes = 8;  // Adam 8, SGD 4, otherwise 0
  Sharding sharding = Sharding::none;
  std::int64_t gpus = 1;
  std::optional<LessonShape> shape = {};  // none: activations are half the weights
};
// A course's lesson on distributed training: 12 bytes for each parameter, activations not divided.
ConventionReport lesson_memory(const LessonQuestion& question);
// GPUs of so many bytes that its states, fully sharded, need; activations are not counted.
std::int64_t lesson_smallest_gpus(const LessonQuestion& question, double device_bytes);

// --- DeepSpeed
// -----------------------------------------------------------------------------------

struct DeepSpeedQuestion {
  std::int64_t parameters = 0;
  std::int64_t largest_layer = 0;  // parameters of it
  std::int64_t gpus_per_node = 1;
  std::int64_t nodes = 1;
};
// The estimators of model states in DeepSpeed (deepspeed/runtime/zero/stage_1_and_2.py and
// stage3.py), every combination of offload that they print, in GiB. ZeRO-1, for which there is
// none, as in Rajbhandari et al., section 5.
ConventionReport deepspeed_memory(const DeepSpeedQuestion& question);
// The largest one of embedding and layers.
std::int64_t largest_layer(const Transformer& model);

// --- Megatron-LM
// ---------------------------------------------------------------------------------

// The report of theoretical memory that Megatron-LM prints at its start
// (megatron/training/theoretical_memory_usage.py), of the first pipeline stage, in MiB: with
// sequence parallelism and selective recomputation one formula, otherwise the other.
ConventionReport megatron_memory(const Transformer& model, const Layout& layout,
                                 std::int64_t padded_vocabulary_rows);

}  // namespace ringworld
