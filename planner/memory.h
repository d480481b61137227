// Memory of training, per GPU and pipeline stage, item by item, in closed form: the published
// accounting. Weights, gradients and optimizer state after Rajbhandari et al. (ZeRO, SC 2020,
// section 3 and 5), activations after Korthikanti et al. (2022). What our own runtime holds is in
// runtime_memory.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "planner/activations.h"
#include "planner/layout.h"
#include "planner/transformer.h"
#include "runtime/bytes.h"

namespace ringworld {

enum class MemoryItem : std::uint8_t {
  weights,
  gradients,
  master_weights,
  moments,
  activations,
  recomputed_layer,
  logits,
  gathered_units,
  buckets,
  communication,
  workspace,
  reserved,
};
inline constexpr std::size_t memory_item_count = 12;
std::string_view name_of(MemoryItem item);  // "master weights"
// What is counted, in one line: "2 copies of ...".
std::string_view meaning_of(MemoryItem item);

struct ItemBytes {
  std::array<Bytes, memory_item_count> of = {};

  Bytes& operator[](MemoryItem item) { return of[static_cast<std::size_t>(item)]; }
  Bytes operator[](MemoryItem item) const { return of[static_cast<std::size_t>(item)]; }
  Bytes total() const;
  // Weights, gradients, master weights and moments: what stays between steps.
  Bytes states() const;
};

struct MemoryOptions {
  ActivationOptions activations = {};
  int optimizer_states = 2;  // f32 numbers for each parameter: AdamW 2, SGD with momentum 1
  // Rows of the vocabulary are padded to a multiple of this for each tensor rank.
  std::int64_t pad_vocabulary = 1;
  // What the device's context, libraries and allocator take: known only by measuring, so it is an
  // allowance.
  Bytes reserved{std::int64_t{2} << 30};
};

struct StageMemory {
  std::int64_t stage = 0;
  std::int64_t layers = 0;
  std::int64_t parameters = 0;  // of one tensor and expert rank, before sharding
  std::int64_t live = 1;        // micro-batches that wait for backward, in chunks
  ItemBytes device = {};
  ItemBytes host = {};  // of each GPU
  ItemBytes file = {};
};

struct MemoryPlan {
  std::vector<StageMemory> stages;
  std::size_t fullest = 0;  // on the device

  const StageMemory& worst() const { return stages[fullest]; }
};

// The layout is one that refusal() lets pass.
MemoryPlan plan_memory(const Transformer& model, const Layout& layout,
                       const MemoryOptions& options = {});

}  // namespace ringworld
