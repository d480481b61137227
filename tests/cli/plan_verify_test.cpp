// The planner's account of what our runtime holds, against the dry run of the same training:
// equal, to the byte.
#include "cli/plan_verify.h"

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/dry_run.h"
#include "planner/runtime_memory.h"
#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

constexpr int threads = 2;

Layout layout_of(Sharding sharding, DType precision, std::int64_t ranks) {
  return {.data = ranks,
          .sharding = sharding,
          .micro_batch = 2,
          .global_batch = 2 * ranks,
          .sequence_length = 96,
          .precision = precision,
          .gradient_precision = gradient_dtype(precision)};
}

void expect_same(const char* model, const Layout& layout) {
  const Transformer& m = find_transformer(model);
  const std::string what =
      fmt::format("{} in {}, {}, {} micro-batches", model, name_of(layout.precision),
                  describe(layout), layout.micro_batches());
  const RuntimeMemory planned = plan_runtime_memory(m, layout, {.threads = threads});
  const DryRun run =
      dry_run(training_of(m, layout, {.threads = threads}), 0, static_cast<int>(layout.gpus()));
  for (std::size_t c = 0; c < category_count; ++c) {
    EXPECT_EQ(planned.device.peak[c], run.device.peak[c])
        << what << ": " << name_of(static_cast<Category>(c));
  }
  EXPECT_EQ(planned.device.total_peak, run.device.total_peak) << what;
  for (const Category category : {Category::parameters, Category::optimizer}) {
    if (run.host) {
      EXPECT_EQ(planned.host.held_in(category), run.host->peak_in(category)) << what;
    }
    if (run.file) {  // in whole pages for each block of state and each unit's parameters
      const Bytes kept = planned.file.held_in(category);
      EXPECT_LE(kept, run.file->peak_in(category)) << what;
      EXPECT_LE(100 * run.file->peak_in(category), 102 * kept) << what;
    }
  }
}

TEST(RuntimeMemory, IsThatOfTheDryRun) {
  for (const char* model : {"gpt2-tiny", "gpt2"}) {
    for (const Sharding sharding : all_shardings) {
      for (const DType precision : {DType::f32, DType::bf16, DType::f64}) {
        for (const std::int64_t ranks : {1, 3, 8}) {
          for (const Recompute recompute : all_recomputes) {
            for (const std::int64_t accumulation : {1, 2}) {
              Layout layout = layout_of(sharding, precision, ranks);
              layout.recompute = recompute;
              layout.global_batch *= accumulation;
              expect_same(model, layout);
            }
          }
        }
      }
    }
  }
}

TEST(RuntimeMemory, OfOffloadedStateIsThatOfTheDryRun) {
  for (const Sharding sharding : all_shardings) {
    for (const DType precision : {DType::f32, DType::bf16}) {
      for (const PlannedOffload offload : all_planned_offloads) {
        for (const bool to_file : {false, true}) {
          Layout layout = layout_of(sharding, precision, 3);
          layout.offload = offload;
          layout.offload_to_file = to_file && offload != PlannedOffload::none;
          if (refusal(layout, find_transformer("gpt2")).empty()) {
            expect_same("gpt2", layout);
          }
        }
      }
    }
  }
}

// Six configurations of a size that people train, with long sequences and many ranks.
TEST(RuntimeMemory, OfLargerTrainingIsThatOfTheDryRun) {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero3}) {
    for (const char* model : {"gpt2-medium", "gpt2-large", "gpt2-xl"}) {
      Layout layout = layout_of(sharding, DType::bf16, 64);
      layout.sequence_length = 1024;
      layout.recompute = Recompute::full;
      expect_same(model, layout);
    }
  }
}

TEST(RuntimeMemory, IsNotGivenForWhatTheRuntimeDoesNotTrain) {
  expect_error<UsageError>(
      [] {
        plan_runtime_memory(find_transformer("llama-3-8b"),
                            layout_of(Sharding::none, DType::f32, 1));
      },
      {"llama-3-8b", "GPT-2"});
  Layout layout = layout_of(Sharding::none, DType::bf16, 1);
  layout.gradient_precision = DType::bf16;
  expect_error<UsageError>([&] { plan_runtime_memory(find_transformer("gpt2"), layout); },
                           {"gradients in bf16", "f32"});
  layout = layout_of(Sharding::none, DType::f32, 1);
  layout.tensor = 2;
  expect_error<UsageError>([&] { plan_runtime_memory(find_transformer("gpt2"), layout); },
                           {"tensor"});
}

}  // namespace
}  // namespace ringworld
