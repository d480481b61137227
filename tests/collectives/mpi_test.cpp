// The collectives between real processes, through MPI, through shared memory, and through both, as
// if the ranks were on two machines: the matrix of operations, dtypes and reductions, a buffer of
// many segments, calls under way while the rank computes, and what shared memory has of its own.
#include <algorithm>
#include <array>
#include <map>

#include <gtest/gtest.h>

#include "tests/collectives/dry_run.h"
#include "tests/collectives/every_call.h"
#include "tests/collectives/matrix.h"
#include "tests/support/mpi_main.h"

namespace ringworld {
namespace {

// One way for messages to travel.
struct Road {
  std::shared_ptr<SharedArena> arena;
  std::unique_ptr<Transport> shared;  // nullptr: MPI
};

// Made once: all ranks take part.
Road& road(const std::string& name) {
  static std::map<std::string, Road> roads;
  if (name != "mpi" && !roads.contains(name)) {
    Road made;
    std::string why_not;
    Transport& below = mpi_test_transport();
    made.arena = SharedArena::create(shared_front(below.local_ranks()), why_not);
    made.shared = make_shared_transport(below, made.arena, name == "mixed" ? 2 : 1, why_not);
    EXPECT_NE(made.shared, nullptr) << why_not;
    roads[name] = std::move(made);
  }
  return roads[name];
}

class Mpi : public testing::TestWithParam<const char*> {
 protected:
  Road& road_ = road(GetParam());
  Transport& transport_ = road_.shared == nullptr ? mpi_test_transport() : *road_.shared;
  std::unique_ptr<Backend> backend_ = make_cpu_backend(
      Device::create({.poison = true},
                     road_.arena == nullptr ? make_host_memory() : make_arena_memory(road_.arena)),
      1);
  Communicator communicator_{transport_, *backend_, {.timeout = std::chrono::seconds(30)}};

  Tensor filled(std::int64_t count, double value) {
    const Tensor x = backend_->empty(DType::f32, Shape{count}, Category::communication);
    backend_->fill(x, value);
    return x;
  }
};

INSTANTIATE_TEST_SUITE_P(Over, Mpi, testing::Values("mpi", "shared", "mixed"),
                         [](const auto& road) { return std::string(road.param); });

TEST_P(Mpi, EveryAlgorithmDTypeAndReduction) {
  Matrix matrix(communicator_);
  for (const DType dtype : all_dtypes) {
    matrix.check(dtype, 10);
  }
}

TEST_P(Mpi, EveryAlgorithmAndCount) {
  constexpr ReduceOp average[] = {ReduceOp::avg};
  Matrix matrix(communicator_);
  for (const std::int64_t count : matrix_counts(communicator_.world_size())) {
    matrix.check(DType::f32, count, average);
    matrix.check_uneven_blocks(DType::bf16, ReduceOp::sum, count);
    matrix.check_all_to_all_with_counts(DType::f32, count);
  }
}

TEST_P(Mpi, ALargeBufferTravelsInSegments) {
  constexpr std::int64_t count = (2 << 20) + 1;  // 8 MiB and 4 bytes
  Matrix matrix(communicator_);
  matrix.with_every(Operation::all_reduce,
                    [&] { matrix.check_all_reduce(DType::f32, ReduceOp::sum, count); });
}

// Segments of three f32: more of them than are posted at a time, a shorter last one, and borders
// that are not those of chunks.
TEST_P(Mpi, ChunksInManySegments) {
  Communicator communicator(transport_, *backend_,
                            {.timeout = std::chrono::seconds(30), .segment = Bytes(12)});
  Matrix matrix(communicator);
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    matrix.check(dtype, 50, std::array{ReduceOp::sum});
  }
  matrix.check_uneven_blocks(DType::f32, ReduceOp::max, 7);
  matrix.check_all_to_all_with_counts(DType::f32, 7);
}

// What is held after the first round of calls is what later rounds have at most, whole messages and
// segments alike.
TEST_P(Mpi, CallsThatWereMadeBeforeAllocateNothing) {
  for (const Bytes segment : {Bytes(100), Bytes(1 << 20)}) {
    Communicator communicator(transport_, *backend_,
                              {.timeout = std::chrono::seconds(30), .segment = segment});
    EveryCall calls(communicator, DType::f32, 100);
    calls.make();
    const Ledger first = backend_->device().ledger();
    for (int round = 0; round < 2; ++round) {
      backend_->device().reset_peaks();
      calls.make();
      EXPECT_EQ(backend_->device().ledger().peak, first.held);
      EXPECT_EQ(backend_->device().ledger().total_peak, first.total_held);
    }
  }
}

// A small call that meets the stream busy runs its schedule, which may need more than it would
// alone: there is room for the largest from the beginning.
TEST_P(Mpi, ThereIsRoomForSmallCallsFromTheBeginning) {
  int reached = 0;
  for (int rank = 0; rank < transport_.world_size(); ++rank) {
    reached += transport_.takes_small(rank) ? 1 : 0;
  }
  const Bytes expected = (reached > 1 ? reached : 0) * Transport::small_message;
  EXPECT_EQ(backend_->device().ledger().held_in(Category::communication), expected);
}

TEST_P(Mpi, ADryRunCostsWhatThisRankCosts) {
  struct Case {
    Bytes segment;
    DType dtype;
    std::int64_t count;
  };
  const int ranks = transport_.world_size();
  const std::string road = GetParam();
  const NullOptions as{.as = road == "mpi" ? NullOptions::As::mpi : NullOptions::As::shared,
                       .local_ranks = road == "mixed" ? (ranks + 1) / 2 : ranks};
  for (const Case& c : {Case{Bytes(100), DType::f32, 100}, Case{Bytes(1 << 20), DType::bf16, 1009},
                        Case{Bytes(1 << 20), DType::f32, 1}}) {
    SCOPED_TRACE(std::to_string(c.count) + " of " + std::string(name_of(c.dtype)));
    const CommunicatorOptions options{.timeout = std::chrono::seconds(30), .segment = c.segment};
    const auto backend = make_cpu_backend(Device::create({}), 1);
    Communicator communicator(transport_, *backend, options);
    expect_same(dry_cost_of_calls(transport_.rank(), ranks, as, options, c.dtype, c.count),
                cost_of_calls(communicator, c.dtype, c.count));
  }
}

// Round the ring both ways before anyone receives, and a collective after that.
TEST_P(Mpi, MessagesGoBothWaysBeforeACollective) {
  const int ranks = communicator_.world_size();
  if (ranks == 1) {
    return;
  }
  const int own = communicator_.rank();
  const int next = (own + 1) % ranks;
  const int previous = (own + ranks - 1) % ranks;
  for (const std::int64_t count : {0, 1, 10, 300'000}) {
    std::vector<Work> sends;
    for (const int peer : {next, previous}) {
      sends.push_back(communicator_.send(filled(count, 10 * own + peer), peer, "round"));
    }
    for (const int peer : {previous, next}) {
      const Tensor y = filled(count, -1);
      communicator_.receive(y, peer, "round").wait();
      const std::vector<double> values = backend_->download_values(y);
      EXPECT_EQ(std::count(values.begin(), values.end(), 10 * peer + own), count);
    }
    const Tensor sum = filled(1, 1);
    Work summed = communicator_.all_reduce(sum, sum, ReduceOp::sum, "after");
    for (Work& send : sends) {
      send.wait();
    }
    summed.wait();
    EXPECT_EQ(backend_->download_values(sum)[0], ranks);
  }
}

TEST_P(Mpi, CallsRunWhileTheRankComputes) {
  constexpr int calls = 8;
  constexpr std::int64_t count = 10'000;
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < calls; ++i) {
    const Tensor x = backend_->empty(DType::f64, Shape{count}, Category::communication);
    backend_->fill(x, communicator_.rank() + i);
    tensors.push_back(x);
    works.push_back(communicator_.all_reduce(x, x, ReduceOp::sum, "under way"));
  }
  const Tensor local = backend_->empty(DType::f64, Shape{count}, Category::workspace);
  backend_->fill(local, 0.5);
  EXPECT_EQ(backend_->sum(local), 0.5 * count);
  const int ranks = communicator_.world_size();
  for (int i = calls - 1; i >= 0; --i) {
    works[i].wait();
    EXPECT_EQ(backend_->download_values(tensors[i]),
              std::vector<double>(count, ranks * (ranks - 1) / 2 + ranks * i));
  }
}

// A root runs ahead of the others as far as messages may wait, and what it broadcast must be what
// it was then.
TEST_P(Mpi, ARootThatRunsAheadMayChangeItsBuffer) {
  communicator_.use(Operation::broadcast, "direct");
  const Tensor x = filled(3, 0);
  for (int call = 1; call <= 100; ++call) {
    backend_->fill(x, communicator_.rank() == 0 ? call : -1);
    communicator_.broadcast(x, 0, "ahead").wait();
    EXPECT_EQ(backend_->download_values(x), std::vector<double>(3, call));
  }
}

// 64 calls under way, waited for in the reverse order, small and large ones by turns.
TEST_P(Mpi, CallsAreWaitedForInAnyOrder) {
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int call = 0; call < 64; ++call) {
    tensors.push_back(filled(call % 2 == 0 ? 1 : 40'000, call));
    works.push_back(
        communicator_.all_reduce(tensors.back(), tensors.back(), ReduceOp::sum, "any order"));
  }
  for (int call = 63; call >= 0; --call) {
    works[static_cast<std::size_t>(call)].wait();
    EXPECT_EQ(backend_->download_values(tensors[static_cast<std::size_t>(call)])[0],
              call * communicator_.world_size());
  }
}

// Tensors outside the memory that peers can map are staged.
TEST_P(Mpi, MemoryThatIsNotSharedIsStaged) {
  const auto host = make_cpu_backend(Device::create({}), 1);
  Communicator communicator(transport_, *host, {.timeout = std::chrono::seconds(30)});
  for (const char* algorithm : {"ring", "direct", "one_shot"}) {
    communicator.use(Operation::all_reduce, algorithm);
    const Tensor x = host->empty(DType::f32, Shape{30'000}, Category::communication);
    host->fill(x, communicator.rank() + 1);
    communicator.all_reduce(x, x, ReduceOp::sum, "staged").wait();
    const int ranks = communicator.world_size();
    EXPECT_EQ(host->download_values(x), std::vector<double>(30'000, ranks * (ranks + 1) / 2));
  }
}

// Messages are done with in order: the large one only when the small one before it is.
TEST_P(Mpi, ALargeMessageIsOverWhenTheSmallOneBeforeItIsRead) {
  if (transport_.rank() == 0 && transport_.world_size() > 1) {
    const auto small = transport_.send(1, 1, filled(1, 7));
    const auto large = transport_.send(1, 2, filled(100'000, 8));
    transport_.wait(large);
    transport_.wait(small);
  } else if (transport_.rank() == 1) {
    const Tensor out = filled(100'000, 0);
    const auto small = transport_.read(0, 1, DType::f32, 1);
    const auto large = transport_.receive(0, 2, out);
    transport_.wait(small);
    transport_.wait(large);
    EXPECT_EQ(backend_->download_values(transport_.reading(small))[0], 7);
    transport_.done_reading(small);
    EXPECT_EQ(backend_->download_values(out)[99'999], 8);
  }
}

// With the others behind, the root's messages to them fill all of their 8 slots, up to 3 of them
// with messages that have been taken without that being told, and what it gives to the sum has no
// room yet: it must not be the sum that goes out when there is. More than 5 broadcasts could wait
// for the others.
TEST(SmallSum, IsOfWhatWasGivenWhereTheOthersAreBehind) {
  Road& shared = road("shared");
  const auto backend = make_cpu_backend(Device::create({}, make_arena_memory(shared.arena)), 1);
  Communicator communicator(*shared.shared, *backend, {.timeout = std::chrono::seconds(30)});
  Communicator pace(mpi_test_transport(), *backend, {.timeout = std::chrono::seconds(30)});
  const Tensor x = backend->zeros(DType::f32, {4}, Category::workspace);
  const std::int64_t ranks = communicator.world_size();
  for (int round = 0; round < 40; ++round) {
    const int broadcasts = 4 + round % 2;
    if (communicator.rank() > 0) {
      pace.barrier("root is ahead");
    }
    for (int i = 0; i < broadcasts; ++i) {
      communicator.broadcast(x, 0, "one way").wait();
    }
    // The root posts its contribution before the others take anything.
    const Tensor value = backend->empty(DType::i64, {1}, Category::workspace);
    backend->upload_values(value, std::vector<double>{21});
    Work sum = communicator.all_reduce(value, value, ReduceOp::sum, "sum");
    if (communicator.rank() == 0) {
      pace.barrier("root is ahead");
    }
    sum.wait();
    EXPECT_EQ(backend->download_values(value)[0], static_cast<double>(21 * ranks))
        << "in round " << round;
  }
}

TEST_P(Mpi, CountsTheRanksOfThisMachine) {
  EXPECT_EQ(transport_.local_ranks(), communicator_.world_size());
}

TEST_P(Mpi, DescribesTheLibraryInOneLine) {
  const std::string description = communicator_.description();
  EXPECT_FALSE(description.empty());
  EXPECT_LT(description.size(), 60u);
  EXPECT_EQ(description.find_first_of("\n\t"), std::string::npos);
}

}  // namespace
}  // namespace ringworld
