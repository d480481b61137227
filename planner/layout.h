// How training is laid over GPUs: the degrees of parallelism, what is sharded, recomputed and
// offloaded, and the batch. Planned, not run: which of these the runtime can run is said by
// ringworld capabilities.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/transformer.h"
#include "runtime/dtype.h"

namespace ringworld {

// What data-parallel ranks share out among themselves (Rajbhandari et al., ZeRO, SC 2020).
enum class Sharding : std::uint8_t {
  none,
  zero1,  // optimizer state
  zero2,  // gradients, too
  zero3,  // weights, too: FSDP
};
inline constexpr Sharding all_shardings[] = {Sharding::none, Sharding::zero1, Sharding::zero2,
                                             Sharding::zero3};
std::string_view name_of(Sharding sharding);  // "none", "zero1", ...
// Takes "ddp" for none and "fsdp" for zero3. Throws UsageError that names `option` and lists all.
Sharding parse_sharding(std::string_view text, std::string_view option);

enum class Recompute : std::uint8_t {
  none,
  selective,  // attention's scores and probabilities (Korthikanti et al., 2022)
  full,       // of every layer only its input is kept
};
inline constexpr Recompute all_recomputes[] = {Recompute::none, Recompute::selective,
                                               Recompute::full};
std::string_view name_of(Recompute recompute);

// What leaves the GPU. `master` are the moments and the 32-bit copy of the weights; `parameters`
// also what a rank keeps of the weights themselves (needs zero3).
enum class PlannedOffload : std::uint8_t { none, optimizer, master, parameters };
inline constexpr PlannedOffload all_planned_offloads[] = {
    PlannedOffload::none, PlannedOffload::optimizer, PlannedOffload::master,
    PlannedOffload::parameters};
std::string_view name_of(PlannedOffload offload);

struct Layout {
  // Degrees of parallelism. Their product is the number of GPUs, but for `expert`: experts are
  // spread over the data-parallel ranks, so that it divides data * context.
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  std::int64_t context = 1;
  std::int64_t expert = 1;
  std::int64_t chunks = 1;                      // of the model on each pipeline stage
  std::vector<std::int64_t> stage_layers = {};  // of each pipeline stage; empty: as even as can be
  bool sequence_parallel = false;               // over the tensor ranks
  std::string schedule = "1f1b";                // a name of pipeline_kinds()

  Sharding sharding = Sharding::none;
  std::int64_t shard_group = 0;  // data-parallel ranks that share; 0: all of them

  std::int64_t micro_batch = 1;   // sequences of one data-parallel rank at once
  std::int64_t global_batch = 0;  // sequences of an optimizer step; 0: one micro-batch on each
  std::int64_t sequence_length = 0;

  DType precision = DType::bf16;  // of weights and activations
  DType gradient_precision = DType::f32;
  Recompute recompute = Recompute::none;
  PlannedOffload offload = PlannedOffload::none;
  bool offload_to_file = false;  // to the host's memory otherwise

  std::int64_t gpus() const { return data * tensor * pipeline * context; }
  // Of each data-parallel rank in a step.
  std::int64_t micro_batches() const;
  // Ranks over which dense parameters are sharded: data-parallel and context-parallel ones hold
  // the same.
  std::int64_t sharding_ranks() const { return shard_group > 0 ? shard_group : data * context; }
};

// "DP 8 x TP 4 x PP 2, zero1, ...": for messages and tables.
std::string describe(const Layout& layout);

// What speaks against the layout for this model, with the numbers that do not fit and the nearest
// that would; empty: nothing. `gpus`: how many there are, 0 where the layout says so itself.
std::string refusal(const Layout& layout, const Transformer& model, std::int64_t gpus = 0);

// Which layers a pipeline's chunk holds: first, and one past the last. Where they do not divide,
// earlier ones have one more. Chunk c of stage s is part c * stages + s of the chain.
struct LayerRange {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - first; }
};
LayerRange layers_of_part(std::int64_t layers, std::int64_t parts, std::int64_t part);

}  // namespace ringworld
