// Layouts: their names, how layers are cut, and what is refused, with the numbers that would do.
#include "planner/layout.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

Layout usual() {
  return {.sequence_length = 1024};
}

TEST(Layout, IsOfAsManyGpusAsTheDegreesSay) {
  // Llama 3 405B (Dubey et al., 2024, table 4), third row.
  const Layout layout{
      .data = 8, .tensor = 8, .pipeline = 16, .context = 16, .sequence_length = 131072};
  EXPECT_EQ(layout.gpus(), 16384);
  EXPECT_EQ(layout.sharding_ranks(), 128);
}

TEST(Layout, CutsLayersAsEvenlyAsCanBe) {
  std::int64_t next = 0;
  std::int64_t least = 1000;
  std::int64_t most = 0;
  for (std::int64_t part = 0; part < 16; ++part) {
    const LayerRange range = layers_of_part(126, 16, part);
    EXPECT_EQ(range.first, next);
    next = range.end;
    least = std::min(least, range.count());
    most = std::max(most, range.count());
  }
  EXPECT_EQ(next, 126);
  EXPECT_EQ(most - least, 1);
}

TEST(Layout, HasTheFieldsNamesForSharding) {
  EXPECT_EQ(parse_sharding("fsdp", "--sharding"), Sharding::zero3);
  EXPECT_EQ(parse_sharding("ddp", "--sharding"), Sharding::none);
  expect_error<UsageError>([] { parse_sharding("zero4", "--sharding"); },
                           {"--sharding", "'zero4'", "zero3"});
}

struct Refused {
  const char* what;
  const char* model;
  Layout layout;
  std::int64_t gpus;
  std::vector<std::string> facts;
};

TEST(Layout, ThatCannotBeIsRefusedWithWhatCan) {
  const auto with = [](auto change) {
    Layout layout = usual();
    change(layout);
    return layout;
  };
  const std::vector<Refused> table = {
      {"product", "gpt2", with([](Layout& l) { l.data = 3; }), 8, {"= 3", "8 GPUs", "data 8"}},
      {"product", "gpt2", with([](Layout& l) { l.tensor = 3; }), 8, {"3", "8 GPUs"}},
      {"heads",
       "gpt2",
       with([](Layout& l) { l.tensor = 5; }),
       0,
       {"tensor 5", "12 heads", "4 or 6"}},
      {"kv", "llama-3-8b", with([](Layout& l) { l.tensor = 16; }), 0, {}},
      {"kv",
       "qwen2.5-7b",
       with([](Layout& l) { l.tensor = 7; }),
       0,
       {"tensor 7", "4 heads of keys"}},
      {"layers", "gpt2", with([](Layout& l) { l.pipeline = 13; }), 0, {"13", "12 layers"}},
      {"chunks", "gpt2", with([](Layout& l) { l.chunks = 2; }), 0, {"chunks 2", "pipeline"}},
      {"schedule",
       "gpt2",
       with([](Layout& l) {
         l.pipeline = 4;
         l.chunks = 2;
         l.schedule = "interleaved-1f1b";
         l.global_batch = 6;
       }),
       0,
       {"interleaved-1f1b", "4 or 8"}},
      {"experts", "gpt2", with([](Layout& l) { l.expert = 2; }), 0, {"gpt2 has no experts"}},
      {"experts",
       "mixtral-8x7b",
       with([](Layout& l) {
         l.data = 3;
         l.expert = 3;
       }),
       0,
       {"expert 3", "8 experts", "2 or 4"}},
      {"experts",
       "mixtral-8x7b",
       with([](Layout& l) {
         l.data = 2;
         l.expert = 4;
       }),
       0,
       {"expert 4", "2 ranks"}},
      {"positions", "gpt2", with([](Layout& l) { l.sequence_length = 1025; }), 0, {"1025", "1024"}},
      {"sequence",
       "llama-3-8b",
       with([](Layout& l) {
         l.sequence_length = 1000;
         l.context = 16;
       }),
       0,
       {"1000", "992 or 1008"}},
      {"sp", "gpt2", with([](Layout& l) { l.sequence_parallel = true; }), 0, {"tensor is 1"}},
      {"batch",
       "gpt2",
       with([](Layout& l) {
         l.data = 2;
         l.micro_batch = 4;
         l.global_batch = 20;
       }),
       0,
       {"global batch 20", "16 or 24"}},
      {"zero", "gpt2", with([](Layout& l) { l.data = 0; }), 0, {"data is 0"}},
      {"group",
       "gpt2",
       with([](Layout& l) {
         l.data = 8;
         l.shard_group = 3;
         l.sharding = Sharding::zero3;
       }),
       0,
       {"shard group 3", "2 or 4"}},
      {"group",
       "gpt2",
       with([](Layout& l) {
         l.data = 8;
         l.shard_group = 4;
       }),
       0,
       {"nothing is sharded"}},
      {"offload",
       "gpt2",
       with([](Layout& l) { l.offload = PlannedOffload::parameters; }),
       0,
       {"zero3"}},
      {"file",
       "gpt2",
       with([](Layout& l) { l.offload_to_file = true; }),
       0,
       {"nothing is offloaded"}},
      {"stages",
       "gpt2",
       with([](Layout& l) {
         l.pipeline = 2;
         l.stage_layers = {5, 6};
       }),
       0,
       {"5,6", "11", "12 layers"}},
      {"tokens",
       "gpt2",
       with([](Layout& l) { l.micro_batch = 100'000'000'000; }),
       0,
       {"micro-batch 100000000000", "268435456 tokens"}},
      {"micro-batches",
       "gpt2",
       with([](Layout& l) { l.global_batch = 1'000'000'000'000; }),
       0,
       {"global batch 1000000000000", "1000000 micro-batches"}},
  };
  for (const Refused& row : table) {
    const std::string reason = refusal(row.layout, find_transformer(row.model), row.gpus);
    EXPECT_EQ(reason.empty(), row.facts.empty()) << row.what << ": " << reason;
    for (const std::string& fact : row.facts) {
      EXPECT_NE(reason.find(fact), std::string::npos)
          << row.what << ": no " << fact << " in " << reason;
    }
  }
  EXPECT_EQ(refusal(usual(), find_transformer("gpt2")), "");
}

}  // namespace
}  // namespace ringworld
