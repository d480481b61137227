// Step time: what must hold for any plan, and each part by hand where a hand can compute it.
#include "planner/step.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/collectives.h"
#include "planner/flops.h"
#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

const Machine& h100() {
  static const Machines machines;
  return machines.find("H100-80GB");
}

Layout layout_of(std::int64_t data, std::int64_t tensor, std::int64_t pipeline,
                 std::int64_t batch) {
  Layout layout;
  layout.data = data;
  layout.tensor = tensor;
  layout.pipeline = pipeline;
  layout.global_batch = batch;
  layout.sequence_length = 4096;
  return layout;
}

StepTime plan(const char* model, const Layout& layout, const Software& software = {}) {
  const Transformer& transformer = find_transformer(model);
  EXPECT_EQ(refusal(layout, transformer), "");
  return plan_step(transformer, layout, h100(), software);
}

// --- Kernels -------------------------------------------------------------------------------------

TEST(Kernels, ALargeProductReachesTheDevicesRate) {
  const DeviceSpeed speed = speed_of(h100(), DType::bf16);
  const double n = 256 * 132;  // whole rounds of tiles
  const double rate = 2 * n * n * n / matmul_seconds(speed, n, n, n);
  EXPECT_LE(rate, speed.matmul_rate);
  EXPECT_GT(rate, 0.99 * speed.matmul_rate);
}

TEST(Kernels, ATileMoreThanARoundCostsAnotherRound) {
  const DeviceSpeed speed = speed_of(h100(), DType::bf16);
  // 33 by 4 tiles on 132 processors; with one row more, the best of the smaller tiles.
  const double round = matmul_seconds(speed, 256 * 33, 512, 1500);
  EXPECT_GT(matmul_seconds(speed, 256 * 33 + 1, 512, 1500) / round, 1.5);
}

TEST(Kernels, AThinProductIsBoundByMemory) {
  const DeviceSpeed speed = speed_of(h100(), DType::bf16);
  EXPECT_DOUBLE_EQ(matmul_seconds(speed, 1, 65536, 65536),
                   2 * (65536.0 + 65536.0 * 65536 + 65536) / speed.memory_rate);
}

TEST(Kernels, AFormatWithoutAUnitIsRefused) {
  const Machines machines;
  expect_error<UsageError>([&] { speed_of(machines.find("V100-32GB"), DType::bf16); },
                           {"bf16", "V100-32GB", "ask for f16"});
  expect_error<UsageError>([&] { speed_of(machines.find("A100-80GB"), DType::bf16, true); },
                           {"--fp8", "A100-80GB"});
}

// --- Steps ---------------------------------------------------------------------------------------

TEST(Step, IsTheSumOfItsExposedParts) {
  const StepTime step = plan("llama-3-70b", layout_of(4, 8, 4, 64));
  double sum = 0;
  for (const StepPart part : all_step_parts) {
    EXPECT_GE(step[part].exposed, 0) << name_of(part);
    EXPECT_GE(step[part].hidden, 0) << name_of(part);
    sum += step[part].exposed;
  }
  EXPECT_DOUBLE_EQ(step.seconds, sum);
}

TEST(Step, OneDeviceDoesNotCommunicate) {
  const StepTime step = plan("llama-3-8b", layout_of(1, 1, 1, 4));
  for (const StepPart part :
       {StepPart::tensor, StepPart::context, StepPart::expert, StepPart::pipeline, StepPart::data,
        StepPart::bubble, StepPart::offload, StepPart::recompute}) {
    EXPECT_EQ(step[part].exposed + step[part].hidden, 0) << name_of(part);
  }
}

TEST(Step, NeverBeatsTheDevice) {
  for (const char* model : {"gpt2", "llama-3-8b", "llama-3-405b", "mixtral-8x7b", "deepseek-v3"}) {
    const Transformer& transformer = find_transformer(model);
    Layout layout = layout_of(8, 1, 1, 8);
    layout.sequence_length = 1024;
    const StepTime step = plan_step(transformer, layout, h100(), {});
    const Throughput reached = throughput(transformer, layout, h100(), {}, step.seconds);
    EXPECT_LT(reached.mfu(), h100().matmul_share.value) << model;
    EXPECT_GT(reached.mfu(), 0.01) << model;
  }
}

// 1F1B: (p - 1) / m of the work; with v chunks a part of that.
TEST(Step, TheBubbleIsTheSchedules) {
  Layout layout = layout_of(1, 1, 8, 32);  // 32 layers of llama-3-8b, 4 on each stage
  const StepTime plain = plan("llama-3-8b", layout);
  // All stages but the last, which also has the head, are alike.
  const UnitTimes units = unit_times(find_transformer("llama-3-8b"), layout, h100(), {});
  const double stage = 4 * (units.dense.forward.compute() + units.dense.backward.compute());
  const double first = units.embedding.compute();
  EXPECT_NEAR(plain[StepPart::bubble].exposed, 7 * stage + first, 1e-9);
  layout.schedule = "interleaved-1f1b";
  layout.chunks = 4;
  EXPECT_NEAR(plan("llama-3-8b", layout)[StepPart::bubble].exposed, (7 * stage + first) / 4, 1e-9);
  layout.chunks = 1;
  layout.schedule = "zb-h1";
  const double weights = 4 * units.dense.backward.weight_matmul;
  EXPECT_NEAR(plan("llama-3-8b", layout)[StepPart::bubble].exposed,
              7 * (stage - 2 * weights) + first, 7 * first);
}

TEST(Step, RecomputationAddsTheForwardItRepeats) {
  Layout layout = layout_of(1, 1, 1, 8);
  const StepTime none = plan("llama-3-8b", layout);
  layout.recompute = Recompute::full;
  const StepTime full = plan("llama-3-8b", layout);
  const UnitTimes units = unit_times(find_transformer("llama-3-8b"), layout, h100(), {});
  EXPECT_NEAR(full.seconds - none.seconds, 8 * 32 * units.dense.forward.compute(), 1e-9);
  layout.recompute = Recompute::selective;
  const StepTime selective = plan("llama-3-8b", layout);
  EXPECT_NEAR(selective.seconds - none.seconds, 8 * 32 * units.dense.forward.attention, 1e-9);
}

// Rajbhandari et al.: ZeRO-1 and ZeRO-2 move what data parallelism moves, ZeRO-3 half as much more.
TEST(Step, ShardingMovesWhatZeroSays) {
  Layout layout = layout_of(64, 1, 1, 64);
  layout.gradient_precision = DType::bf16;
  const auto moved = [&](Sharding sharding) {
    layout.sharding = sharding;
    const PartTime data = plan("llama-3-8b", layout, {.overlap_data = false})[StepPart::data];
    return data.exposed;
  };
  const double plain = moved(Sharding::none);
  EXPECT_NEAR(moved(Sharding::zero1) / plain, 1, 0.02);
  EXPECT_NEAR(moved(Sharding::zero2) / plain, 1, 0.02);
  EXPECT_NEAR(moved(Sharding::zero3) / plain, 1.5, 0.03);
}

TEST(Step, OverlapHidesAndDoesNotAdd) {
  Layout layout = layout_of(64, 1, 1, 64);
  layout.sharding = Sharding::zero3;
  const StepTime apart = plan("llama-3-8b", layout, {.overlap_data = false});
  const StepTime together = plan("llama-3-8b", layout, {.overlap_data = true});
  EXPECT_EQ(apart[StepPart::data].hidden, 0);
  EXPECT_GT(together[StepPart::data].hidden, 0);
  EXPECT_LT(together.seconds, apart.seconds);
  EXPECT_LE(together[StepPart::data].hidden, apart[StepPart::data].exposed);
}

// Traffic of sequence parallelism is that of tensor parallelism (Korthikanti et al.,
// section 4.2.2), and norms are shared out.
TEST(Step, SequenceParallelismSharesOutNorms) {
  Layout layout = layout_of(1, 8, 1, 8);
  const StepTime plain = plan("llama-3-70b", layout, {.overlap_tensor = false});
  layout.sequence_parallel = true;
  const StepTime shared = plan("llama-3-70b", layout, {.overlap_tensor = false});
  EXPECT_LT(shared[StepPart::elementwise].exposed, plain[StepPart::elementwise].exposed);
}

// Two moments and the master weights, 4 bytes each, read and written; the gradient read, and before
// that read for its norm and written to be zero; the weights written.
TEST(Step, TheUpdateMovesItsStates) {
  const Layout layout = layout_of(1, 1, 1, 4);
  const double parameters = held_parameters(find_transformer("llama-3-8b"), layout).dense;
  const double rate = h100().memory_bandwidth.value * h100().memory_share.value;
  EXPECT_NEAR(plan("llama-3-8b", layout)[StepPart::optimizer].exposed,
              parameters * (24 + 4 + 8 + 2) / rate, 1e-9);
}

TEST(Step, OffloadingCostsTransfersAndTheHostsUpdate) {
  Layout layout = layout_of(8, 1, 1, 8);
  layout.sharding = Sharding::zero2;
  const StepTime device = plan("llama-3-8b", layout);
  layout.offload = PlannedOffload::master;
  const StepTime host = plan("llama-3-8b", layout);
  EXPECT_LT(host[StepPart::optimizer].exposed, device[StepPart::optimizer].exposed);
  // All parameters are updated by the node's CPUs.
  EXPECT_GT(host[StepPart::offload].exposed, 8.03e9 / h100().adam_rate.value);
  layout.offload_to_file = true;
  EXPECT_GT(plan("llama-3-8b", layout)[StepPart::offload].exposed, host[StepPart::offload].exposed);
}

// Each expert's parameters are held by one of `expert` ranks; all of them together are the model's.
TEST(Step, HeldParametersAreTheModels) {
  for (const char* name : {"llama-3-8b", "mixtral-8x7b", "gpt2"}) {
    const Transformer& model = find_transformer(name);
    const HeldParameters held = held_parameters(model, layout_of(1, 1, 1, 1));
    EXPECT_NEAR(held.dense + held.experts, static_cast<double>(count_parameters(model).total()),
                1e5)
        << name;
  }
  const Transformer& mixtral = find_transformer("mixtral-8x7b");
  Layout layout = layout_of(8, 1, 1, 8);
  const double all = held_parameters(mixtral, layout).experts;
  layout.expert = 8;
  EXPECT_DOUBLE_EQ(held_parameters(mixtral, layout).experts, all / 8);
}

TEST(Step, ExpertsAreSentToAndFetchedFromWhereTheyAre) {
  Layout layout = layout_of(8, 1, 1, 8);
  EXPECT_EQ(plan("mixtral-8x7b", layout)[StepPart::expert].exposed, 0);
  layout.expert = 8;
  const StepTime step = plan("mixtral-8x7b", layout);
  // Two sendings forward and two backward in 32 layers, of two experts' 4096 tokens of 8 KiB.
  const double bytes = 2.0 * 4096 * 4096 * 2;
  const double one = all_to_all_time(h100().network(), {8, 8}, bytes).seconds;
  EXPECT_NEAR(step[StepPart::expert].exposed, 32 * 4 * one, 1e-9);
}

// The list of collectives adds up to the step's communication, axis by axis. What is hidden slows
// compute, so that a second of it counts a little in what is exposed, too.
TEST(Step, CollectivesAddUpToTheStep) {
  std::vector<std::pair<const char*, Layout>> cases;
  for (const Sharding sharding : all_shardings) {
    for (const Recompute recompute : all_recomputes) {
      Layout layout = layout_of(8, 4, 2, 32);
      layout.sharding = sharding;
      layout.recompute = recompute;
      layout.sequence_parallel = recompute == Recompute::selective;
      layout.context = sharding == Sharding::zero1 ? 2 : 1;
      cases.emplace_back("llama-3-70b", layout);
      layout.expert = 8;
      layout.tensor = 2;
      cases.emplace_back("mixtral-8x7b", layout);
    }
  }
  for (const auto& [name, layout] : cases) {
    const Transformer& model = find_transformer(name);
    ASSERT_EQ(refusal(layout, model), "");
    const StepTime step = plan_step(model, layout, h100(), {});
    std::array<double, step_part_count> sums = {};
    for (const CollectiveUse& use :
         collectives_of_step(model, layout, h100(), {}, step.slowest_stage)) {
      sums[static_cast<std::size_t>(use.axis)] += use.seconds();
    }
    for (const StepPart axis : {StepPart::tensor, StepPart::context, StepPart::expert,
                                StepPart::pipeline, StepPart::data}) {
      const double sum = sums[static_cast<std::size_t>(axis)];
      const double hidden = step[axis].hidden;
      EXPECT_NEAR(step[axis].exposed + (1 - h100().contention.value) * hidden, sum, 1e-9 * sum)
          << describe(layout) << ": " << name_of(axis);
    }
  }
}

TEST(Step, ThroughputIsTokensOverTime) {
  const Layout layout = layout_of(8, 1, 1, 64);
  const Throughput reached = throughput(find_transformer("llama-3-8b"), layout, h100(), {}, 2.0);
  EXPECT_DOUBLE_EQ(reached.tokens_per_second, 64 * 4096 / 2.0);
  EXPECT_DOUBLE_EQ(reached.model_flops, 64 * 4096 / 2.0 / 8 *
                                            model_flops_per_token(find_transformer("llama-3-8b"),
                                                                  4096, FlopConvention::causal));
  EXPECT_EQ(reached.mfu(), reached.hfu());
}

}  // namespace
}  // namespace ringworld
