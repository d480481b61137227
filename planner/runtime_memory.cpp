#include "planner/runtime_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/runtime_books.h"
#include "planner/runtime_model.h"
#include "planner/runtime_stage.h"
#include "planner/runtime_strategy.h"
#include "planner/runtime_units.h"
#include "runtime/error.h"
#include "runtime/transport.h"

namespace ringworld {
namespace {

// The stage's chunks, of whole units.
std::vector<ChunkBooks> chunks_of_stage(const Transformer& m, const Layout& l,
                                        const PipelineSchedule& schedule, int stage) {
  const std::vector<std::int64_t> layers = runtime_part_layers(m, l);
  std::vector<ChunkBooks> chunks;
  int first = 0;
  for (const int part : schedule.parts[static_cast<std::size_t>(stage)]) {
    std::vector<UnitKind> units(static_cast<std::size_t>(layers[static_cast<std::size_t>(part)]),
                                UnitKind::block);
    if (part == 0) {
      units.insert(units.begin(), UnitKind::embedding);
    }
    if (part + 1 == std::ssize(layers)) {
      units.push_back(UnitKind::head);
    }
    const auto count = static_cast<int>(units.size());
    chunks.push_back({std::move(units), first});
    first += count;
  }
  return chunks;
}

// What the communicator holds from one call to the next, on one machine: a place for each rank's
// small message; and 16-bit sums of tensor ranks, which travel in f32.
std::int64_t scratch_of_calls(const Transformer& m, const Layout& l) {
  constexpr std::int64_t alignment = 64;
  const std::int64_t small = l.gpus() > 1 ? l.gpus() * Transport::small_message.value : 0;
  if (l.tensor == 1 || wide_dtype(l.precision) == l.precision) {
    return small;
  }
  const std::int64_t sums = l.micro_batch * l.sequence_length * m.width * size_of(DType::f32).value;
  return std::max(small, (sums + alignment - 1) / alignment * alignment);
}

// What stays between steps.
void take_states(const Layout& l, std::int64_t elements, std::int64_t own, int states, Books& books,
                 RuntimeMemory& result) {
  const std::int64_t value = size_of(l.precision).value;
  const std::int64_t wide = size_of(gradient_dtype(l.precision)).value;
  const bool mixed = value != wide;
  Ledger& tier = l.offload_to_file ? result.file : result.host;
  const auto add = [&](Category category, std::int64_t bytes, bool offloaded) {
    if (!offloaded) {
      books.take(category, bytes);
      return;
    }
    tier.held[static_cast<std::size_t>(category)] += Bytes(bytes);
    tier.total_held += Bytes(bytes);
  };
  const std::int64_t updated = l.sharding >= Sharding::zero1 ? own : elements;
  const std::int64_t kept = l.sharding == Sharding::zero3 ? own : elements;
  add(Category::parameters, kept * value, l.offload == PlannedOffload::parameters);
  add(Category::gradients, (l.sharding >= Sharding::zero2 ? own : elements) * wide, false);
  add(Category::optimizer, updated * wide * states, l.offload >= PlannedOffload::optimizer);
  // At level master there is one on the tier even where the value is its own.
  const bool copies = mixed || l.offload == PlannedOffload::master;
  add(Category::optimizer, copies ? updated * wide : 0, l.offload >= PlannedOffload::master);
}

}  // namespace

RuntimeMemory plan_runtime_memory(const Transformer& m, const Layout& l,
                                  const RuntimeOptions& options) {
  if (const std::string why = runtime_refusal(m, l); !why.empty()) {
    throw UsageError(why);
  }
  // On a whole chain one micro-batch follows another; in the second, the last gradients of the
  // first are still on their way.
  const bool whole = l.pipeline == 1;
  const PipelineSchedule schedule =
      emit_pipeline(find_pipeline(whole ? "1f1b" : l.schedule),
                    {.stages = static_cast<int>(l.pipeline),
                     .micro_batches = static_cast<int>(
                         whole ? std::min<std::int64_t>(2, l.micro_batches()) : l.micro_batches()),
                     .chunks = static_cast<int>(l.chunks)});
  const std::vector<ChunkBooks> chunks = chunks_of_stage(m, l, schedule, options.stage);
  std::vector<UnitKind> units;
  for (const ChunkBooks& chunk : chunks) {
    units.insert(units.end(), chunk.units.begin(), chunk.units.end());
  }

  RuntimeMemory result{.stage = options.stage};
  Books books;
  StrategyBooks strategy(m, l, units, books);
  take_states(l, strategy.elements(), strategy.own(), options.optimizer_states, books, result);
  books.take(Category::communication, scratch_of_calls(m, l));
  RuntimeUnits model(m, l, options.threads, books);
  StageBooks(schedule, options.stage, chunks, l.recompute == Recompute::full, strategy, model)
      .run();
  strategy.finish_reductions();
  // The loss; and sums of squares of all ranks, in two numbers each.
  books.touch(Category::communication, 8);
  const auto touch_squares = [&books](std::int64_t ranks) {
    books.touch(Category::communication, 16 * (ranks + 1));
  };
  if (l.sharding != Sharding::none) {
    touch_squares(l.data);
  }
  if (l.tensor * l.pipeline > 1) {
    touch_squares(l.tensor * l.pipeline);
  }
  result.device = books.ledger();
  return result;
}

RuntimeMemory plan_fullest_stage(const Transformer& m, const Layout& l,
                                 const RuntimeOptions& options) {
  RuntimeMemory fullest;
  for (int stage = 0; stage < l.pipeline; ++stage) {
    RuntimeOptions of_stage = options;
    of_stage.stage = stage;
    RuntimeMemory memory = plan_runtime_memory(m, l, of_stage);
    if (stage == 0 || memory.device.total_peak > fullest.device.total_peak) {
      fullest = std::move(memory);
    }
  }
  return fullest;
}

}  // namespace ringworld
