// Meshes: what can be written, where each rank is, and whom it talks to along each axis.
#include "parallel/mesh.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/collectives/on_threads.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

TEST(Mesh, AxesComeInAnyOrderAndAreOneWhereLeftOut) {
  EXPECT_EQ(parse_mesh("dp=2,pp=3,tp=4"), (MeshShape{.data = 2, .pipeline = 3, .tensor = 4}));
  EXPECT_EQ(parse_mesh("tp=4,dp=2,pp=3"), (MeshShape{.data = 2, .pipeline = 3, .tensor = 4}));
  EXPECT_EQ(parse_mesh("tp=8"), (MeshShape{.tensor = 8}));
  EXPECT_EQ(parse_mesh("TP=8,Pp=2"), (MeshShape{.pipeline = 2, .tensor = 8}));
  EXPECT_EQ(parse_mesh("dp=128,pp=16,tp=8").ranks(), 16384);
  EXPECT_EQ(parse_mesh("dp=128,pp=16,tp=8").model_ranks(), 128);
  EXPECT_EQ(to_string(parse_mesh("pp=2")), "dp=1,pp=2,tp=1");
  for (const MeshShape& mesh : meshes_of(12)) {
    EXPECT_EQ(parse_mesh(to_string(mesh)), mesh);
  }
}

TEST(Mesh, WhatIsNoMeshIsRefusedInItsOwnWords) {
  const auto refuse = [](const std::string& text, std::initializer_list<std::string_view> facts) {
    SCOPED_TRACE(text);
    expect_error<UsageError>([&] { parse_mesh(text); }, facts);
  };
  refuse("", {"--mesh is empty", "dp=2,pp=2,tp=2"});
  refuse("dp=2,xp=2", {"unknown axis 'xp'", "did you mean", "dp", "pp", "tp"});
  refuse("tpp=2", {"unknown axis 'tpp'", "did you mean"});
  refuse("2", {"unknown axis '2'"});
  refuse("dp=2,dp=2", {"axis dp is there twice", "dp=2,dp=2"});
  refuse("dp=2,tp=1,dp=1", {"axis dp is there twice"});
  refuse("dp=2,DP=1", {"axis DP is there twice"});
  refuse("dp=2,cp=2", {"'cp'", "--context-parallel", "dp", "pp", "tp"});
  for (const char* item : {"tp", "tp=", "tp=0", "tp=-2", "tp=two", "tp=2x", "tp=1.5", "tp= 2",
                           "tp=99999999999999999999", "tp=1000001"}) {
    refuse(std::string("dp=2,") + item, {item, "dp=2,pp=2,tp=2"});
  }
  refuse(",dp=2", {"unknown axis ''"});
  refuse("dp=2,,tp=2", {"unknown axis ''"});
  refuse("dp=2,", {"unknown axis ''"});
}

TEST(Mesh, TheProductIsTheWorldOrEveryFactorIsNamed) {
  check_mesh({.data = 2, .pipeline = 2, .tensor = 2}, 8);
  const auto refuse = [](const MeshShape& mesh, int world,
                         std::initializer_list<std::string_view> facts) {
    expect_error<UsageError>([&] { check_mesh(mesh, world); }, facts);
  };
  refuse({.data = 3, .pipeline = 2, .tensor = 2}, 8,
         {"dp 3 x pp 2 x tp 2 = 12", "there are 8", "use dp=2,pp=2,tp=2"});
  refuse({.data = 2, .pipeline = 3, .tensor = 1}, 8,
         {"dp 2 x pp 3 x tp 1 = 6", "there are 8", "multiple of pp x tp = 3"});
  refuse({.tensor = 2}, 1, {"dp 1 x pp 1 x tp 2 = 2", "there is 1"});
  // 2^32 times a world of 8 is no 8 in 32 bits.
  refuse({.data = 1 << 16, .pipeline = 1 << 16, .tensor = 8}, 8, {"34359738368"});
}

TEST(Mesh, EveryMeshOfAWorldIsThereOnce) {
  for (const int world : {1, 2, 6, 7, 8, 12}) {
    int expected = 0;
    for (int data = 1; data <= world; ++data) {
      for (int pipeline = 1; pipeline <= world; ++pipeline) {
        for (int tensor = 1; tensor <= world; ++tensor) {
          expected += data * pipeline * tensor == world ? 1 : 0;
        }
      }
    }
    const std::vector<MeshShape> meshes = meshes_of(world);
    EXPECT_EQ(static_cast<int>(meshes.size()), expected) << world;
    EXPECT_EQ(meshes.front(), (MeshShape{.data = world}));
    for (std::size_t i = 0; i < meshes.size(); ++i) {
      EXPECT_EQ(meshes[i].ranks(), world);
      EXPECT_EQ(std::count(meshes.begin(), meshes.end(), meshes[i]), 1);
    }
  }
}

// Ranks of a tensor group are neighbours, then come the stages, then the data ranks.
TEST(Mesh, TensorRanksAreNeighboursThenStagesThenData) {
  const MeshShape shape{.data = 2, .pipeline = 3, .tensor = 4};
  int rank = 0;
  for (int data = 0; data < 2; ++data) {
    for (int pipeline = 0; pipeline < 3; ++pipeline) {
      for (int tensor = 0; tensor < 4; ++tensor, ++rank) {
        const MeshPlace place = place_in(shape, rank);
        EXPECT_EQ(place.data, data) << rank;
        EXPECT_EQ(place.pipeline, pipeline) << rank;
        EXPECT_EQ(place.tensor, tensor) << rank;
      }
    }
  }
}

// The ranks of the world that a communicator joins, in its order.
std::vector<std::int64_t> members(Communicator& group, int rank_in_world) {
  Backend& backend = group.backend();
  const Tensor own = backend.empty(DType::i64, {1}, Category::communication);
  const Tensor all = backend.empty(DType::i64, {group.world_size()}, Category::communication);
  const std::int64_t value = rank_in_world;
  backend.upload(own, std::as_bytes(std::span(&value, 1)));
  group.all_gather(all, own, "members").wait();
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(group.world_size()));
  backend.download(std::as_writable_bytes(std::span(ranks)), all);
  return ranks;
}

TEST(Mesh, EachAxisHasACommunicatorOfItsOwn) {
  using Ranks = std::vector<std::int64_t>;
  run_communicators(12, [](Communicator& world) {
    const Mesh mesh(world, {.data = 2, .pipeline = 3, .tensor = 2});
    const int rank = world.rank();
    const int tensor = rank % 2;
    const int copy = rank / 6 * 6;  // the first rank of this one's copy of the model
    EXPECT_EQ(members(mesh.tensor(), rank), (Ranks{rank - tensor, rank - tensor + 1}));
    EXPECT_EQ(members(mesh.pipeline(), rank),
              (Ranks{copy + tensor, copy + 2 + tensor, copy + 4 + tensor}));
    EXPECT_EQ(members(mesh.data(), rank), (Ranks{rank % 6, rank % 6 + 6}));
    EXPECT_EQ(members(mesh.model(), rank),
              (Ranks{copy, copy + 1, copy + 2, copy + 3, copy + 4, copy + 5}));
    const bool at_an_end = mesh.is_first_stage() || mesh.is_last_stage();
    ASSERT_EQ(mesh.ends() != nullptr, at_an_end);
    if (at_an_end) {
      EXPECT_EQ(members(*mesh.ends(), rank), (Ranks{copy + tensor, copy + 4 + tensor}));
    }
    EXPECT_EQ(&mesh.world(), &world);
  });
}

TEST(Mesh, DataParallelismAloneIsTheWorldItself) {
  run_communicators(3, [](Communicator& world) {
    const Mesh mesh(world);
    EXPECT_EQ(&mesh.data(), &world);
    EXPECT_EQ(mesh.tensor().world_size(), 1);
    EXPECT_EQ(mesh.pipeline().world_size(), 1);
    EXPECT_EQ(mesh.ends(), nullptr);
    EXPECT_TRUE(mesh.is_first_stage() && mesh.is_last_stage());
  });
}

}  // namespace
}  // namespace ringworld
