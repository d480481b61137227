// Schedules executed over threads: the whole matrix of operations, algorithms, dtypes, reductions,
// counts and roots, in place and out of place.
#include <array>
#include <atomic>
#include <mutex>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "collectives/execute.h"
#include "collectives/hierarchical.h"
#include "tests/collectives/matrix.h"
#include "tests/collectives/on_threads.h"

namespace ringworld {
namespace {

constexpr ReduceOp sum_and_average[] = {ReduceOp::sum, ReduceOp::avg};

class Execution : public testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Worlds, Execution, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16));

TEST_P(Execution, EveryAlgorithmDTypeAndReduction) {
  run_communicators(GetParam(), [](Communicator& communicator) {
    Matrix matrix(communicator);
    for (const DType dtype : all_dtypes) {
      matrix.check(dtype, 10);
    }
  });
}

TEST_P(Execution, EveryAlgorithmAndCount) {
  run_communicators(GetParam(), [](Communicator& communicator) {
    Matrix matrix(communicator);
    for (const std::int64_t count : matrix_counts(communicator.world_size())) {
      matrix.check(DType::f32, count, sum_and_average);
      matrix.check_uneven_blocks(DType::bf16, ReduceOp::sum, count);
      matrix.check_all_to_all_with_counts(DType::f32, count);
    }
  });
}

// Segments of three f32: more of them than are posted at a time, a shorter last one, and borders
// that are not those of chunks.
TEST_P(Execution, ChunksInManySegments) {
  run_communicators(GetParam(), {.segment = Bytes(12)}, [](Communicator& communicator) {
    Matrix matrix(communicator);
    for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
      matrix.check(dtype, 50, sum_and_average);
    }
    matrix.check_uneven_blocks(DType::f32, ReduceOp::max, 7);
    matrix.check_all_to_all_with_counts(DType::f32, 7);
  });
}

class Roots : public testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Worlds, Roots, testing::Range(1, 10));

TEST_P(Roots, EveryRootAndCountsAroundTheRanks) {
  run_communicators(GetParam(), [](Communicator& communicator) {
    Matrix matrix(communicator);
    const int ranks = communicator.world_size();
    for (int root = 0; root < ranks; ++root) {
      for (const std::int64_t count : std::set<std::int64_t>{0, 1, 2, ranks - 1, ranks, ranks + 1,
                                                             root == ranks - 1 ? 1'000'003 : 1}) {
        matrix.with_every(Operation::broadcast,
                          [&] { matrix.check_broadcast(DType::i8, root, count); });
        matrix.with_every(Operation::reduce,
                          [&] { matrix.check_reduce(DType::i8, ReduceOp::max, root, count); });
      }
      matrix.with_every(Operation::gather, [&] { matrix.check_gather(DType::i8, root, 3); });
      matrix.with_every(Operation::scatter, [&] { matrix.check_scatter(DType::i8, root, 3); });
    }
  });
}

// The steps and bytes that the proof counts are those that are run.
TEST_P(Execution, SendsWhatTheClosedFormsSay) {
  const int ranks = GetParam();
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.library || !algorithm.refuses(ranks).empty()) {
      continue;
    }
    const std::int64_t count = algorithm.operation == Operation::barrier ? 1 : 16 * ranks;
    const std::int64_t block = count / ranks;
    std::atomic<std::int64_t> sent = 0;
    run_communicators(ranks, [&](Communicator& communicator) {
      communicator.use(algorithm.operation, algorithm.name);
      const Tensor whole = filled(communicator, DType::f32, count, 1);
      const Tensor other = filled(communicator, DType::f32, count, 1);
      const Tensor part = filled(communicator, DType::f32, block, 1);
      switch (algorithm.operation) {
        case Operation::all_reduce:
          communicator.all_reduce(whole, whole, ReduceOp::sum, "counted").wait();
          break;
        case Operation::reduce_scatter:
          communicator.reduce_scatter(part, whole, ReduceOp::sum, "counted").wait();
          break;
        case Operation::all_gather:
          communicator.all_gather(whole, part, "counted").wait();
          break;
        case Operation::broadcast:
          communicator.broadcast(whole, 0, "counted").wait();
          break;
        case Operation::reduce:
          communicator.reduce(other, whole, ReduceOp::sum, 0, "counted").wait();
          break;
        case Operation::all_to_all:
          communicator.all_to_all(other, whole, "counted").wait();
          break;
        case Operation::gather:
          communicator.gather(whole, part, 0, "counted").wait();
          break;
        case Operation::scatter:
          communicator.scatter(part, whole, 0, "counted").wait();
          break;
        case Operation::barrier:
          communicator.barrier("counted");
          break;
      }
      sent += communicator.traffic().bytes_sent.value;
    });
    EXPECT_EQ(sent, 4 * algorithm.elements_sent.value(ranks, count))
        << algorithm.name << " " << name_of(algorithm.operation);
  }
}

TEST(Execute, HierarchicalAllReduce) {
  for (const int nodes : {2, 3}) {
    for (const char* between : {"recursive_doubling", "ring", "double_tree"}) {
      const Algorithm& algorithm = find_or_compose(
          Operation::all_reduce, fmt::format("hierarchical:{}:direct:{}:bruck", nodes, between));
      run_communicators(6, {.segment = Bytes(40)}, [&](Communicator& communicator) {
        communicator.use(Operation::all_reduce, algorithm.name);
        Matrix matrix(communicator);
        for (const std::int64_t count : matrix_counts(6)) {
          matrix.check_all_reduce(DType::f32, ReduceOp::avg, count);
        }
      });
    }
  }
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
    const std::vector<int> ranks = {0, 1, 2};
    Scratch scratch(*backend);
    Executor(emit(transport.rank()))
        .run(even_chunks(x, 2), {}, ReduceOp::sum, *backend, scratch,
             {.transport = transport, .ranks = ranks, .signature = 5, .segment = Bytes(4)});
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
