// Dry runs of the communicator against real ranks as threads, and in worlds that no machine holds.
#include "tests/collectives/dry_run.h"

#include "runtime/error.h"
#include "tests/collectives/on_threads.h"

namespace ringworld {
namespace {

class DryRun : public testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Worlds, DryRun, testing::Values(1, 2, 3, 5, 8));

TEST_P(DryRun, CostsWhatEveryRankOfARealRunCosts) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    for (const std::int64_t count : {0, 1, 7, 1009}) {
      run_communicators(GetParam(), {}, [&](Communicator& communicator) {
        SCOPED_TRACE("rank " + std::to_string(communicator.rank()) + ", " + std::to_string(count) +
                     " of " + std::string(name_of(dtype)));
        expect_same(dry_cost_of_calls(communicator.rank(), GetParam(),
                                      {.as = NullOptions::As::threads}, {}, dtype, count),
                    cost_of_calls(communicator, dtype, count));
      });
    }
  }
}

TEST(DryRun, GroupsAreCheapInLargeWorlds) {
  const int ranks = 16'384;
  const auto transport = make_null_transport(4'321, ranks, {.local_ranks = 8});
  const auto backend = make_meta_backend(make_meta_device(Bytes(0)), 1);
  Communicator world(*transport, *backend);
  std::vector<int> members;
  for (int rank = 1; rank < ranks; rank += 4) {
    members.push_back(rank);
  }
  const auto group = world.subgroup(members);
  const Tensor whole = backend->empty(DType::bf16, {4096, 1 << 20}, Category::gathered);
  const Tensor own = whole.rows(group->rank(), 1);
  group->all_gather(whole, own, "gather").wait();
  group->reduce_scatter(own, whole, ReduceOp::max, "scatter").wait();
  EXPECT_EQ(group->traffic_by_label().at("gather").bytes_sent, 4095 * own.bytes());
  EXPECT_EQ(group->traffic_by_label().at("scatter").bytes_sent, 4095 * own.bytes());
  world.barrier("everybody");
  EXPECT_EQ(world.traffic_by_label().at("everybody").calls, 1);
}

TEST(DryRun, ReductionsGiveZero) {
  const auto transport = make_null_transport(1, 64);
  const auto backend = make_meta_backend(make_meta_device(Bytes(0)), 1);
  Communicator communicator(*transport, *backend);
  EXPECT_EQ(communicator.all_reduce_value(3.5, ReduceOp::sum, "value"), 0);
  EXPECT_EQ(communicator.traffic().bytes_sent, Bytes(63 * 8));
}

TEST(DryRun, ABudgetThatIsTooSmallIsSaid) {
  const auto transport = make_null_transport(1, 4, {.as = NullOptions::As::mpi});
  const auto backend = make_meta_backend(make_meta_device(Bytes(5000)), 1);
  Communicator communicator(*transport, *backend, {.algorithm = "one_shot"});
  const Tensor x = backend->empty(DType::f32, {1024}, Category::communication);
  Work work = communicator.all_reduce(x, x, ReduceOp::sum, "too large");
  EXPECT_THROW(work.wait(), OutOfDeviceMemory);
}

}  // namespace
}  // namespace ringworld
