// The search finds what is best, gives a reason for every layout it rejects, and leaves out no
// layout that is better.
#include "planner/search.h"

#include <numeric>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

const Machine& machine(const char* name) {
  static const Machines machines;
  return machines.find(name);
}

SearchQuestion question(std::int64_t gpus, std::int64_t batch, std::int64_t length) {
  SearchQuestion q;
  q.gpus = gpus;
  q.global_batch = batch;
  q.sequence_length = length;
  return q;
}

TEST(Search, EveryLayoutHasAVerdict) {
  const SearchResult result = search_layouts(find_transformer("llama-3-70b"), machine("H100-80GB"),
                                             question(64, 256, 4096));
  std::int64_t rejected = 0;
  for (const Rejected& one : result.rejected) {
    rejected += one.count;
    EXPECT_EQ(one.count > 0, !one.example.empty());
  }
  EXPECT_EQ(rejected + result.fitting, result.weighed);
  EXPECT_GT(result[Rejection::memory].count, 0);
  EXPECT_GT(result.fitting, 0);
}

TEST(Search, WhatItFindsFitsAndIsInOrder) {
  const Transformer& model = find_transformer("llama-3-70b");
  const SearchQuestion q = question(64, 256, 4096);
  const SearchResult result = search_layouts(model, machine("H100-80GB"), q);
  ASSERT_EQ(result.best.size(), q.keep);
  double last = 0;
  for (const Found& found : result.best) {
    EXPECT_EQ(refusal(found.layout, model, 64), "");
    EXPECT_LE(static_cast<double>(found.memory.value), 80e9);
    EXPECT_EQ(found.memory, plan_memory(model, found.layout, q.memory).worst().device.total());
    EXPECT_DOUBLE_EQ(found.time.seconds,
                     plan_step(model, found.layout, machine("H100-80GB"), q.software).seconds);
    EXPECT_GE(found.time.seconds, last);
    last = found.time.seconds;
  }
}

// Every layout of a small space, weighed one by one.
TEST(Search, NothingBetterIsLeftOut) {
  const Transformer& model = find_transformer("llama-3-8b");
  const SearchQuestion q = question(8, 16, 2048);
  const SearchResult result = search_layouts(model, machine("A100-80GB"), q);
  double fastest = 1e300;
  for (std::int64_t tensor : {1, 2, 4, 8}) {
    for (std::int64_t pipeline : {1, 2, 4, 8}) {
      for (std::int64_t context : {1, 2}) {
        for (std::int64_t micro_batch : {1, 2, 4, 8, 16}) {
          for (const Sharding sharding : all_shardings) {
            for (const Recompute recompute : all_recomputes) {
              for (const bool sequence : {false, true}) {
                for (const PlannedOffload offload :
                     {PlannedOffload::none, PlannedOffload::master}) {
                  for (const char* schedule : {"1f1b", "zb-h1", "zb-h2", "interleaved-1f1b"}) {
                    Layout l;
                    l.tensor = tensor;
                    l.pipeline = pipeline;
                    l.context = context;
                    l.data = 8 / tensor / pipeline / context;
                    if (l.data == 0) {
                      continue;
                    }
                    l.chunks = schedule[0] == 'i' ? 2 : 1;
                    l.schedule = schedule;
                    l.micro_batch = micro_batch;
                    l.global_batch = 16;
                    l.sequence_length = 2048;
                    l.sharding = sharding;
                    l.recompute = recompute;
                    l.sequence_parallel = sequence;
                    l.offload = offload;
                    if (refusal(l, model, 8).empty() &&
                        plan_memory(model, l, q.memory).worst().device.total() <=
                            Bytes(80'000'000'000)) {
                      fastest = std::min(
                          fastest, plan_step(model, l, machine("A100-80GB"), q.software).seconds);
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  EXPECT_LE(result.best.front().time.seconds, fastest);
}

TEST(Search, SaysHowNearAModelCameThatDoesNotFit) {
  const SearchResult result =
      search_layouts(find_transformer("llama-3-405b"), machine("A100-40GB"), question(8, 8, 4096));
  EXPECT_TRUE(result.best.empty());
  EXPECT_EQ(result.fitting, 0);
  EXPECT_NE(result[Rejection::memory].example.find("nearest: "), std::string::npos);
  EXPECT_NE(result[Rejection::memory].example.find("of 40.0 GB"), std::string::npos);
}

// 70B on 8 GPUs of 80 GB: states of 18 bytes are 1.27 TB, more than they have together.
TEST(Search, OffloadsWhatDoesNotFitOtherwise) {
  const Transformer& model = find_transformer("llama-3-70b");
  SearchQuestion q = question(8, 16, 4096);
  const SearchResult with = search_layouts(model, machine("H100-80GB"), q);
  ASSERT_FALSE(with.best.empty());
  for (const Found& found : with.best) {
    EXPECT_NE(found.layout.offload, PlannedOffload::none) << describe(found.layout);
  }
  q.offload = false;
  EXPECT_TRUE(search_layouts(model, machine("H100-80GB"), q).best.empty());
}

TEST(Search, TensorRanksStayOnANode) {
  const SearchResult result = search_layouts(find_transformer("llama-3-405b"), machine("H100-80GB"),
                                             question(1024, 512, 8192));
  for (const Found& found : result.best) {
    EXPECT_LE(found.layout.tensor, 8);
  }
}

TEST(Search, RangesOfGpus) {
  EXPECT_EQ(parse_gpu_range("16384", "--gpus"), std::vector<std::int64_t>{16384});
  EXPECT_EQ(parse_gpu_range("8..64", "--gpus"), (std::vector<std::int64_t>{8, 16, 32, 64}));
  EXPECT_EQ(parse_gpu_range("8..50", "--gpus"), (std::vector<std::int64_t>{8, 16, 32, 50}));
  for (const char* bad : {"", "0", "-8", "8..", "..8", "8...9", "many", "8.5", "9999999"}) {
    expect_error<UsageError>([&] { parse_gpu_range(bad, "--gpus"); },
                             {"--gpus", std::string("'") + bad + "'"});
  }
  expect_error<UsageError>([] { parse_gpu_range("64..8", "--gpus"); }, {"ask for 8..64"});
}

}  // namespace
}  // namespace ringworld
