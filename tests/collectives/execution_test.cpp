// Schedules executed over threads: the whole matrix of operations, dtypes, reductions and counts,
// in place and out of place, for worlds of 1 to 9 ranks.
#include <array>

#include <gtest/gtest.h>

#include "collectives/execute.h"
#include "tests/collectives/matrix.h"
#include "tests/collectives/on_threads.h"

namespace ringworld {
namespace {

class Execution : public testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Worlds, Execution, testing::Range(1, 10));

TEST_P(Execution, EveryOperationDTypeReductionAndCount) {
  run_communicators(GetParam(), [](Communicator& communicator) {
    Matrix matrix(communicator);
    for (const DType dtype : all_dtypes) {
      for (const std::int64_t count : matrix_counts(communicator.world_size())) {
        matrix.check(dtype, count);
      }
    }
  });
}

// Segments of three f32: more of them than are posted at a time, and a shorter last one.
TEST_P(Execution, ChunksInManySegments) {
  run_communicators(GetParam(), {.segment = Bytes(12)}, [](Communicator& communicator) {
    Matrix matrix(communicator);
    for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
      matrix.check(dtype, 200);
    }
  });
}

// Two chunks to one peer in one step, which the peer receives in two steps, behind a third rank:
// all actions of a step must make progress however long the chunks are.
TEST(Execute, ActionsOfAStepDoNotWaitForOneAnother) {
  const auto emit = [](int rank) {
    Schedule schedule(2);
    schedule.begin_step();
    if (rank == 0) {
      schedule.send(1, 0);
      schedule.send(2, 1);
    } else if (rank == 2) {
      schedule.receive(0, 1);
      schedule.begin_step();
      schedule.send(1, 1);
    } else {
      schedule.receive(2, 1);
      schedule.begin_step();
      schedule.receive(0, 0);
    }
    return schedule;
  };
  std::array<std::vector<double>, 3> results;
  run_on_threads(3, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({}), 1);
    transport.bind(*backend);
    transport.set_timeout(std::chrono::seconds(10));
    const Tensor x = backend->empty(DType::f32, Shape{100}, Category::communication);
    backend->fill(x, transport.rank());
    execute(emit(transport.rank()), x, ReduceOp::sum, transport, 5, Bytes(4));
    results[static_cast<std::size_t>(transport.rank())] = backend->download_values(x);
  });
  EXPECT_EQ(results[1], std::vector<double>(100, 0));
  EXPECT_EQ(std::vector<double>(results[2].begin() + 50, results[2].end()),
            std::vector<double>(50, 0));
}

TEST(Execute, CountsTheBytesSentAndSkipsEmptyChunks) {
  for (const std::int64_t count : {0, 1, 5, 12}) {
    Bytes sent;
    std::mutex mutex;
    run_communicators(4, [&](Communicator& communicator) {
      const Tensor x = filled(communicator, DType::f32, count, 1);
      communicator.all_reduce(x, x, ReduceOp::sum, "counted").wait();
      const std::lock_guard lock(mutex);
      sent += communicator.traffic().bytes_sent;
    });
    EXPECT_EQ(sent, Bytes(2 * 3 * count * 4));  // 2 (P - 1) n elements of 4 bytes
  }
}

}  // namespace
}  // namespace ringworld
