// Other calculators' arithmetic, against the numbers that they print.
#include "planner/conventions.h"

#include <gtest/gtest.h>

#include "planner/memory_advice.h"

namespace ringworld {
namespace {

constexpr std::int64_t billion = 1'000'000'000;
constexpr std::int64_t million = 1'000'000;

double total(const LessonQuestion& question) {
  return *lesson_memory(question).total / 1e9;
}

TEST(Lesson, MemoryPerGpu) {
  struct Row {
    std::int64_t billions;
    Sharding sharding;
    std::int64_t gpus;
    double gigabytes;
    bool fits;
  };
  for (const Row& row :
       {Row{7, Sharding::none, 1, 91.0, false}, Row{7, Sharding::zero3, 8, 17.5, true},
        Row{70, Sharding::none, 1, 910.0, false}, Row{70, Sharding::zero3, 8, 175.0, false},
        Row{70, Sharding::zero3, 16, 122.5, false}, Row{405, Sharding::zero3, 64, 480.9, false},
        Row{405, Sharding::zero3, 128, 443.0, false}}) {
    const double gigabytes =
        total({.parameters = row.billions * billion, .sharding = row.sharding, .gpus = row.gpus});
    EXPECT_NEAR(gigabytes, row.gigabytes, 0.05) << row.billions << "B on " << row.gpus;
    EXPECT_EQ(gigabytes <= 80, row.fits);
  }
}

TEST(Lesson, ActivationsOfAShape) {
  const LessonQuestion question{
      .parameters = 7 * billion,
      .shape = LessonShape{.sequence_length = 2048, .batch = 8, .hidden = 4096, .layers = 32}};
  EXPECT_NEAR(lesson_memory(question).rows.back().device / 1e9, 17.18, 0.005);
  EXPECT_NEAR(total(question), 101.18, 0.005);
}

// States alone, in 32 bits and mixed; and the fewest GPUs of 80 GB.
TEST(Lesson, BytesOfAParameter) {
  const auto states = [](std::int64_t billions, std::int64_t size) {
    const ConventionReport report =
        lesson_memory({.parameters = billions * billion, .precision_bytes = size});
    return (*report.total - report.rows.back().device) / 1e9;
  };
  for (const std::int64_t billions : {7, 13, 70, 405}) {
    EXPECT_DOUBLE_EQ(states(billions, 4), static_cast<double>(16 * billions));
    EXPECT_DOUBLE_EQ(states(billions, 2), static_cast<double>(12 * billions));
  }
  EXPECT_EQ(lesson_smallest_gpus({.parameters = 405 * billion}, 80e9), 61);
}

double gib_of(const ConventionReport& report, std::string_view name, bool host) {
  for (const ConventionRow& row : report.rows) {
    if (row.name == name) {
      return (host ? *row.host : row.device) / report.bytes_of_unit;
    }
  }
  ADD_FAILURE() << "no row " << name;
  return 0;
}

// DeepSpeed's documentation of its estimators (docs/code-docs/source/memory.rst).
TEST(DeepSpeed, TableOfItsDocumentation) {
  const ConventionReport report = deepspeed_memory(
      {.parameters = 2851 * million, .largest_layer = 32 * million, .gpus_per_node = 8});
  struct Row {
    const char* name;
    double host;
    double gpu;
  };
  // Printed from unrounded counts of parameters: half a million either way.
  constexpr double share = 0.5 / 2851;
  for (const Row& row :
       {Row{"zero2, optimizer offloaded", 127.48, 5.31}, Row{"zero2", 127.48, 15.93},
        Row{"zero3, all offloaded, zero.Init", 71.71, 0.12},
        Row{"zero3, all offloaded", 127.48, 0.12},
        Row{"zero3, optimizer offloaded, zero.Init", 63.74, 0.79},
        Row{"zero3, optimizer offloaded", 127.48, 0.79}, Row{"zero3", 127.48, 6.10}}) {
    EXPECT_NEAR(gib_of(report, row.name, true), row.host, 0.005 + 2 * share * row.host) << row.name;
    EXPECT_NEAR(gib_of(report, row.name, false), row.gpu, 0.01) << row.name;
  }
  // 1.47 with the largest layer's real size, 1.43 with 32M.
  EXPECT_NEAR(gib_of(report, "zero3, zero.Init", true), 1.43, 0.005);
}

TEST(DeepSpeed, SixBillionOnFourGpus) {
  const ConventionReport report = deepspeed_memory(
      {.parameters = 6805 * million, .largest_layer = 131 * million, .gpus_per_node = 4});
  EXPECT_NEAR(gib_of(report, "zero3, all offloaded", false), 0.49, 0.005);
  EXPECT_NEAR(gib_of(report, "zero3, optimizer offloaded", false), 3.66, 0.005);
  EXPECT_NEAR(gib_of(report, "zero3", false), 29.01, 0.005);
  EXPECT_NEAR(gib_of(report, "zero3, all offloaded", true), 171.1, 0.05);
  EXPECT_NEAR(gib_of(report, "zero1", false), (4 + 12.0 / 4) * 6805e6 / (1 << 30), 0.005);
}

TEST(DeepSpeed, LargestLayer) {
  EXPECT_EQ(largest_layer(find_transformer("gpt2")), 50257LL * 768);
  EXPECT_EQ(largest_layer(find_transformer("llama-2-70b")),
            layer_parameters(find_transformer("llama-2-70b"), 0).total());
}

// The report's formulas, evaluated apart from this code.
TEST(Megatron, ReportOfGpt3) {
  const Layout layout{.tensor = 8,
                      .pipeline = 8,
                      .sequence_parallel = true,
                      .global_batch = 64,
                      .sequence_length = 2048,
                      .recompute = Recompute::selective};
  const ConventionReport report = megatron_memory(find_transformer("gpt3-175b"), layout, 51200);
  EXPECT_NEAR(report.rows[0].device / report.bytes_of_unit, 48007.27, 0.01);
  EXPECT_NEAR(report.rows[1].device / report.bytes_of_unit, 9816.02, 0.01);
}

TEST(Megatron, ReportOfLlama3) {
  const Layout layout{
      .data = 8, .sharding = Sharding::zero1, .global_batch = 8, .sequence_length = 8192};
  const ConventionReport report = megatron_memory(find_transformer("llama-3-8b"), layout, 128256);
  EXPECT_NEAR(report.rows[0].device / report.bytes_of_unit, 57436.90, 0.01);
  EXPECT_NEAR(report.rows[1].device / report.bytes_of_unit, 38761.87, 0.01);
  EXPECT_NEAR(*report.total / report.bytes_of_unit, 96198.77, 0.01);
}

// --- Advice
// --------------------------------------------------------------------------------------

TEST(Advice, FitsAndIsNotThereAlready) {
  const Transformer& m = find_transformer("llama-3-8b");
  const Layout layout{.data = 8, .global_batch = 8, .sequence_length = 8192};
  const Bytes budget{80 * billion};
  ASSERT_GT(plan_memory(m, layout).worst().device.total(), budget);
  const std::vector<MemoryAdvice> advice = what_would_fit(m, layout, {}, budget);
  ASSERT_FALSE(advice.empty());
  for (const MemoryAdvice& change : advice) {
    EXPECT_LE(change.device, budget) << change.change;
    EXPECT_EQ(change.layout.gpus(), 8) << change.change;
    EXPECT_EQ(plan_memory(m, change.layout).worst().device.total(), change.device);
    EXPECT_EQ(refusal(change.layout, m), "") << change.change;
  }
}

TEST(Advice, TheNearestWhereNothingFits) {
  const Transformer& m = find_transformer("llama-3-405b");
  const Layout layout{.data = 8, .global_batch = 8, .sequence_length = 8192};
  const std::vector<MemoryAdvice> advice = what_would_fit(m, layout, {}, Bytes(10 * billion));
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_GT(advice[0].device, Bytes(10 * billion));
}

TEST(Advice, FewestGpus) {
  const Transformer& m = find_transformer("llama-3-70b");
  const Layout layout{.data = 8,
                      .sharding = Sharding::zero3,
                      .global_batch = 8,
                      .sequence_length = 4096,
                      .recompute = Recompute::full};
  const Bytes budget{80 * billion};
  const auto fewest = smallest_data_degree(m, layout, {}, budget);
  ASSERT_TRUE(fewest);
  EXPECT_LE(fewest->device, budget);
  Layout one_less = fewest->layout;
  one_less.data -= 1;
  one_less.global_batch = one_less.data;
  EXPECT_GT(plan_memory(m, one_less).worst().device.total(), budget);
  // Replicas do not get smaller.
  Layout replicated = layout;
  replicated.sharding = Sharding::none;
  EXPECT_FALSE(smallest_data_degree(m, replicated, {}, budget));
}

}  // namespace
}  // namespace ringworld
