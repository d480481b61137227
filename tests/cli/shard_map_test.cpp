// The map of shards against theory, by counting: every element of every tensor is on as many ranks
// as the strategy and the mesh say, and the bytes of the map are those of the devices' ledgers.
#include "cli/shard_map.h"

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/shard_groups.h"

namespace ringworld {
namespace {

struct Case {
  std::string name = {};
  std::string strategy;
  MeshShape mesh;
  bool sequence_parallel = false;
  int shard_group = 0;
  ReduceGradients reduce = ReduceGradients::automatic;
  std::string schedule = "1f1b";
  DType precision = DType::f32;
  std::string model = "gpt2-tiny";
  OptimizerKind optimizer = OptimizerKind::adamw;
};

TrainingSetup setup_of(const Case& c) {
  TrainingSetup setup;
  setup.model = {.name = c.model, .layers = 4, .heads = 4, .width = 24, .vocabulary = 61};
  setup.precision = c.precision;
  setup.mesh = c.mesh;
  setup.sequence_parallel = c.sequence_parallel;
  setup.pipeline.schedule = c.schedule;
  setup.strategy.name = c.strategy;
  setup.strategy.shard_group = c.shard_group;
  setup.strategy.reduce_gradients = c.reduce;
  setup.optimizer.kind = c.optimizer;
  return setup;
}

// Ranks of one model, all stages and tensor ranks, that have an element of the tensor. Norms,
// positions and biases that follow a sum over tensor ranks are whole on each of these, and a tied
// embedding is on the first stage and on the last.
int model_ranks_with(const Case& c, const std::string& tensor) {
  const auto has = [&](std::string_view part) { return tensor.find(part) != std::string::npos; };
  const bool split =
      c.model == "llama-tiny" ? !has("norm") : !has("ln_") && !has("wpe") && !has("c_proj.bias");
  const bool tied = c.model == "gpt2-tiny" && has("wte");
  return (split ? 1 : c.mesh.tensor) * (tied && c.mesh.pipeline > 1 ? 2 : 1);
}

// How often the data ranks hold what one of them would hold alone (ZeRO, Rajbhandari et al., SC
// 2020, section 5).
OfStates<int> copies_of(const Case& c) {
  const int all = c.mesh.data;
  const int sharded = c.shard_group == 0 ? 1 : all / c.shard_group;
  const bool once = c.reduce == ReduceGradients::once;
  if (c.strategy == "ddp") {
    return {{all, all, all}};
  }
  if (c.strategy == "zero1") {
    return {{all, all, sharded}};
  }
  if (c.strategy == "zero2") {
    return {{all, once ? all : sharded, sharded}};
  }
  return {{sharded, once ? all : sharded, sharded}};
}

class ShardMapOf : public testing::TestWithParam<Case> {};

TEST_P(ShardMapOf, EveryElementIsOnAsManyRanksAsTheorySays) {
  const Case& c = GetParam();
  const ShardMap map = map_shards(setup_of(c), c.mesh.ranks());
  const OfStates<int> copies = copies_of(c);
  ASSERT_GT(map.tensors.size(), 20u);
  for (const MappedTensor& tensor : map.tensors) {
    for (const ModelState state : all_model_states) {
      std::vector<int> holders(static_cast<std::size_t>(tensor.shape.elements()), 0);
      std::vector<int> counting = holders;  // ranks that count them in norms
      for (const RankPart& part : tensor.parts) {
        const Range& held = part.held[state];
        for_each_run(part.parameter, held.first, held.count,
                     [&](std::int64_t first, std::int64_t, std::int64_t count) {
                       for (std::int64_t i = first; i < first + count; ++i) {
                         ++holders.at(static_cast<std::size_t>(i));
                         counting.at(static_cast<std::size_t>(i)) += part.parameter.counted ? 1 : 0;
                       }
                     });
      }
      const int expected = copies[state] * model_ranks_with(c, tensor.name);
      EXPECT_EQ(std::ranges::count(holders, expected), tensor.shape.elements())
          << tensor.name << " " << name_of(state) << ": " << expected << " expected, "
          << holders.front() << " hold the first element, " << holders.back() << " the last";
      EXPECT_EQ(std::ranges::count(counting, copies[state]), tensor.shape.elements())
          << tensor.name << " " << name_of(state);
    }
  }
}

TEST_P(ShardMapOf, BytesAreTheDevices) {
  const Case& c = GetParam();
  const ShardMap map = map_shards(setup_of(c), c.mesh.ranks());
  std::vector<OfStates<Bytes>> mapped(map.charged.size());
  for (const MappedTensor& tensor : map.tensors) {
    for (const RankPart& part : tensor.parts) {
      for (const ModelState state : all_model_states) {
        mapped.at(static_cast<std::size_t>(part.rank))[state] +=
            part.held[state].count * map.element_bytes[state];
      }
    }
  }
  for (std::size_t rank = 0; rank < mapped.size(); ++rank) {
    for (const ModelState state : all_model_states) {
      EXPECT_EQ(mapped[rank][state], map.charged[rank][state])
          << "rank " << rank << " " << name_of(state);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, ShardMapOf,
    testing::Values(
        Case{"DdpAlone", "ddp", {.data = 1}}, Case{"Ddp", "ddp", {.data = 3}},
        Case{"Zero1", "zero1", {.data = 4}}, Case{"Zero2Odd", "zero2", {.data = 7}},
        Case{.name = "Zero2Once",
             .strategy = "zero2",
             .mesh = {.data = 4},
             .reduce = ReduceGradients::once},
        Case{"Zero3", "zero3", {.data = 2}}, Case{"Fsdp", "fsdp", {.data = 5}},
        Case{.name = "FsdpOnceBf16",
             .strategy = "fsdp",
             .mesh = {.data = 4},
             .reduce = ReduceGradients::once,
             .precision = DType::bf16},
        Case{.name = "FsdpHybrid", .strategy = "fsdp", .mesh = {.data = 6}, .shard_group = 3},
        Case{.name = "Zero1HybridSgd",
             .strategy = "zero1",
             .mesh = {.data = 4},
             .shard_group = 2,
             .precision = DType::f16,
             .optimizer = OptimizerKind::sgd},
        Case{.name = "Tensor", .strategy = "ddp", .mesh = {.tensor = 4}, .precision = DType::f64},
        Case{.name = "TensorSequenceFsdp",
             .strategy = "fsdp",
             .mesh = {.data = 3, .tensor = 2},
             .sequence_parallel = true},
        Case{.name = "Pipeline", .strategy = "ddp", .mesh = {.pipeline = 4}},
        Case{.name = "Interleaved",
             .strategy = "zero1",
             .mesh = {.data = 2, .pipeline = 2},
             .schedule = "interleaved-1f1b"},
        Case{.name = "MeshFsdp",
             .strategy = "fsdp",
             .mesh = {.data = 2, .pipeline = 2, .tensor = 2},
             .precision = DType::bf16},
        Case{.name = "LlamaMesh",
             .strategy = "zero1",
             .mesh = {.data = 2, .pipeline = 2, .tensor = 2},
             .model = "llama-tiny"}),
    [](const auto& c) { return c.param.name; });

TEST(ShardGroups, SaysWhichRanks) {
  EXPECT_EQ(ranks_text({3}), "3");
  EXPECT_EQ(ranks_text({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(ranks_text({0, 1}), "0-1");
  EXPECT_EQ(ranks_text({0, 2}), "0 2");
  EXPECT_EQ(ranks_text({0, 4, 8, 12}), "0-12 by 4");
  EXPECT_EQ(ranks_text({0, 1, 4, 5}), "0-1 4-5");
  EXPECT_EQ(ranks_text({0, 2, 3, 9}), "0 2-3 9");
}

// Layers that are alike are one; those of another stage are others.
TEST(ShardGroups, FoldsEqualLayers) {
  const auto names = [](const Case& c) {
    std::vector<std::string> result;
    for (const FoldedTensor& tensor : fold_layers(map_shards(setup_of(c), c.mesh.ranks()), 0)) {
      if (tensor.name.ends_with("ln_1.weight")) {
        result.push_back(tensor.name);
      }
    }
    return result;
  };
  EXPECT_EQ(names({.strategy = "fsdp", .mesh = {.data = 4}}),
            std::vector<std::string>{"h.0..3.ln_1.weight"});
  EXPECT_EQ(names({.strategy = "ddp", .mesh = {.pipeline = 2}}),
            (std::vector<std::string>{"h.0..1.ln_1.weight", "h.2..3.ln_1.weight"}));
}

// Of vectors and matrices of width 24.
TEST(ShardGroups, SaysWhatIsReplicaAndWhatShard) {
  const auto groups = [](const Case& c, const std::string& name) {
    const ShardMap map = map_shards(setup_of(c), c.mesh.ranks());
    const auto tensor = std::ranges::find(map.tensors, name, &MappedTensor::name);
    return group_shards(map, *tensor, 0);
  };
  // The last unit's own parameters are 48 elements, this vector the first half of them.
  const auto zero1 = groups({.strategy = "zero1", .mesh = {.data = 4}}, "ln_f.weight");
  ASSERT_EQ(zero1.size(), 3u);
  EXPECT_EQ(zero1[0], (ShardGroup{.states = {ModelState::parameters, ModelState::gradients},
                                  .ranks = {0, 1, 2, 3},
                                  .slice = "all of (24)",
                                  .kind = "replica x4",
                                  .bytes = Bytes(24 * 8)}));
  EXPECT_EQ(zero1[1], (ShardGroup{.states = {ModelState::optimizer},
                                  .ranks = {0},
                                  .slice = "elements 0:12 of (24)",
                                  .kind = "shard",
                                  .bytes = Bytes(12 * 8)}));
  EXPECT_EQ(zero1[2].slice, "elements 12:24 of (24)");
  const auto split = groups({.strategy = "ddp", .mesh = {.tensor = 2}}, "h.1.attn.c_attn.weight");
  ASSERT_EQ(split.size(), 2u);
  EXPECT_EQ(split[1].slice, "rows 12:24 36:48 60:72");
  EXPECT_EQ(split[1].kind, "shard");
  const auto both = groups({.strategy = "fsdp", .mesh = {.data = 2}}, "h.1.mlp.c_fc.weight");
  EXPECT_EQ(both.front().states.size(), model_state_count);
}

}  // namespace
}  // namespace ringworld
