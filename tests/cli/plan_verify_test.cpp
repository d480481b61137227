// The planner's account of what our runtime holds, against the dry run of the same training:
// equal, to the byte.
#include "cli/plan_verify.h"

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/dry_run.h"
#include "planner/runtime_memory.h"
#include "planner/runtime_model.h"
#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

constexpr int usual_threads = 2;

Layout layout_of(Sharding sharding, DType precision, std::int64_t ranks) {
  return {.data = ranks,
          .sharding = sharding,
          .micro_batch = 2,
          .global_batch = 2 * ranks,
          .sequence_length = 96,
          .precision = precision,
          .gradient_precision = gradient_dtype(precision)};
}

// On the first rank of every stage.
void expect_same(const Transformer& m, const Layout& layout, int threads = usual_threads) {
  RuntimeOptions options{.threads = threads};
  for (; options.stage < layout.pipeline; ++options.stage) {
    const std::string what = fmt::format("{} in {}, {}, {}, {} micro-batches, stage {}", m.name,
                                         name_of(layout.precision), describe(layout),
                                         layout.schedule, layout.micro_batches(), options.stage);
    const RuntimeMemory planned = plan_runtime_memory(m, layout, options);
    const DryRun run =
        dry_run(training_of(m, layout, options), options.stage * static_cast<int>(layout.tensor),
                static_cast<int>(layout.gpus()));
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
}

void expect_same(const char* model, const Layout& layout) {
  expect_same(find_transformer(model), layout);
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

// A Llama whose head is the embedding's table, and whose sizes do not divide evenly.
Transformer tied_llama() {
  Transformer m = find_transformer("llama-tiny");
  m.name = "tied llama-tiny";
  m.layers = 5;
  m.vocabulary = 257;
  m.tied_head = true;
  return m;
}

TEST(RuntimeMemory, OfLlamaIsThatOfTheDryRun) {
  for (const Transformer& m : {find_transformer("llama-tiny"), tied_llama()}) {
    for (const Sharding sharding : all_shardings) {
      for (const DType precision : {DType::f32, DType::bf16}) {
        for (const Recompute recompute : all_recomputes) {
          Layout layout = layout_of(sharding, precision, 3);
          layout.recompute = recompute;
          layout.global_batch *= 2;
          expect_same(m, layout);
        }
      }
    }
  }
}

// Where what kernels hold for each thread is more than what they work on.
TEST(RuntimeMemory, OfManyThreadsIsThatOfTheDryRun) {
  for (const char* model : {"gpt2-tiny", "llama-tiny", "llama-3-8b"}) {
    for (const DType precision : {DType::f32, DType::bf16}) {
      for (const std::int64_t length : {1, 8, 64, 128}) {
        Layout layout = layout_of(Sharding::none, precision, 1);
        layout.sequence_length = length;
        layout.micro_batch = layout.global_batch = 1;
        expect_same(find_transformer(model), layout, 64);
      }
    }
  }
}

TEST(RuntimeMemory, OfTensorRanksIsThatOfTheDryRun) {
  for (const Transformer& m :
       {find_transformer("gpt2-tiny"), find_transformer("llama-tiny"), tied_llama()}) {
    for (const Sharding sharding : all_shardings) {
      for (const DType precision : {DType::f32, DType::bf16}) {
        for (const bool sequence_parallel : {false, true}) {
          for (const Recompute recompute : all_recomputes) {
            Layout layout = layout_of(sharding, precision, 2);
            layout.tensor = 2;
            layout.sequence_parallel = sequence_parallel;
            layout.recompute = recompute;
            expect_same(m, layout);
          }
        }
      }
    }
  }
}

// Every schedule, with stages of one and of several chunks, alone and beside the other axes.
TEST(RuntimeMemory, OfPipelinesIsThatOfTheDryRun) {
  struct Mesh {
    std::int64_t data;
    std::int64_t tensor;
    bool sequence_parallel;
  };
  for (const Transformer& m : {find_transformer("gpt2-tiny"), tied_llama()}) {
    for (const std::string& schedule : pipeline_names()) {
      for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero3}) {
        for (const Mesh& mesh : {Mesh{1, 1, false}, Mesh{2, 1, false}, Mesh{2, 2, true}}) {
          for (const DType precision : {DType::f32, DType::bf16}) {
            for (const Recompute recompute : all_recomputes) {
              Layout layout = layout_of(sharding, precision, mesh.data);
              layout.tensor = mesh.tensor;
              layout.sequence_parallel = mesh.sequence_parallel;
              layout.pipeline = 2;
              layout.schedule = schedule;
              layout.chunks = find_pipeline(schedule).usual_chunks;
              layout.global_batch *= 6;
              layout.recompute = recompute;
              if (runtime_refusal(m, layout).empty()) {
                expect_same(m, layout);
              } else {
                EXPECT_EQ(sharding, Sharding::zero3) << schedule;  // zb schedules alone
              }
            }
          }
        }
      }
    }
  }
}

// Layouts of a size that people train, on many ranks.
TEST(RuntimeMemory, OfLargerMeshesIsThatOfTheDryRun) {
  Layout llama = layout_of(Sharding::zero1, DType::bf16, 4);
  llama.tensor = 8;
  llama.sequence_parallel = true;
  llama.pipeline = 4;
  llama.schedule = "interleaved-1f1b";
  llama.chunks = 2;
  llama.sequence_length = 8192;
  llama.micro_batch = 1;
  llama.global_batch = 4 * 16;
  expect_same("llama-3-70b", llama);
  llama.chunks = 1;
  llama.schedule = "zb-h1";
  llama.recompute = Recompute::selective;
  expect_same("llama-3-8b", llama);

  Layout gpt = layout_of(Sharding::none, DType::f32, 2);
  gpt.tensor = 5;
  gpt.pipeline = 4;
  gpt.stage_layers = {14, 12, 12, 10};
  gpt.sequence_length = 1023;
  gpt.micro_batch = 1;
  gpt.global_batch = 2 * 8;
  expect_same("gpt2-xl", gpt);

  for (const PlannedOffload offload : all_planned_offloads) {
    Layout tied = layout_of(Sharding::zero3, DType::bf16, 3);
    tied.tensor = 2;
    tied.pipeline = 2;
    tied.global_batch *= 2;
    tied.offload = offload;
    expect_same("llama-3.2-1b", tied);
  }
}

TEST(RuntimeMemory, IsNotGivenForWhatTheRuntimeDoesNotTrain) {
  expect_error<UsageError>(
      [] {
        plan_runtime_memory(find_transformer("mixtral-8x7b"),
                            layout_of(Sharding::none, DType::f32, 1));
      },
      {"mixtral-8x7b", "GPT-2", "Llama"});
  Layout layout = layout_of(Sharding::none, DType::bf16, 1);
  layout.gradient_precision = DType::bf16;
  expect_error<UsageError>([&] { plan_runtime_memory(find_transformer("gpt2"), layout); },
                           {"gradients in bf16", "f32"});
  layout = layout_of(Sharding::none, DType::f32, 1);
  layout.context = 2;
  expect_error<UsageError>([&] { plan_runtime_memory(find_transformer("gpt2"), layout); },
                           {"context", "pipeline parallelism"});
  layout = layout_of(Sharding::zero2, DType::f32, 2);
  layout.pipeline = 2;
  layout.schedule = "zb-h1";
  layout.global_batch = 8;
  expect_error<UsageError>([&] { plan_runtime_memory(find_transformer("gpt2"), layout); },
                           {"zb-h1", "zero2"});
}

}  // namespace
}  // namespace ringworld
