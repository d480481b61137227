// The calls of a benchmark: which rank is the root when, and that what comes out is looked at.
#include "cli/bench_call.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tests/collectives/on_threads.h"

namespace ringworld {
namespace {

constexpr int calling_ranks = 3;
constexpr Operation with_root[] = {Operation::broadcast, Operation::reduce, Operation::gather,
                                   Operation::scatter};

// What this rank has sent in `calls` calls, the first of which has root 1.
Bytes sent(Communicator& communicator, Operation operation, bool in_place, std::int64_t calls) {
  const BufferSize size = fit(operation, Bytes(calling_ranks * 400), DType::f32, calling_ranks);
  BenchCall call(communicator, nullptr, operation, DType::f32, ReduceOp::sum, 1, size);
  const Contender contender{&find_algorithm(operation, "tree"), in_place};
  communicator.use(operation, "tree");
  call.prepare(size, contender);
  EXPECT_EQ(call.turns(), calling_ranks);
  call.fill();
  const Bytes before = communicator.traffic().bytes_sent;
  for (std::int64_t i = 0; i < calls; ++i) {
    call.run();
  }
  const Bytes after = communicator.traffic().bytes_sent;
  if (calls == 1) {
    EXPECT_EQ(call.count_wrong(), 0);
  }
  return after - before;
}

// On every rank, of every operation that has a root, in place and not.
void for_each_with_root(
    const std::function<void(Communicator&, Operation operation, bool in_place)>& body) {
  for (const Operation operation : with_root) {
    for (const bool in_place : {false, true}) {
      if (in_place ? has_in_place(operation) : has_out_of_place(operation)) {
        SCOPED_TRACE(std::string(name_of(operation)) + (in_place ? " in place" : ""));
        run_communicators(calling_ranks, [&](Communicator& communicator) {
          body(communicator, operation, in_place);
        });
      }
    }
  }
}

TEST(BenchCallTest, TheFirstCallHasTheRootThatIsAskedFor) {
  for_each_with_root([](Communicator& communicator, Operation operation, bool in_place) {
    const Bytes bytes = sent(communicator, operation, in_place, 1);
    const bool gives = operation == Operation::broadcast || operation == Operation::scatter;
    if (communicator.rank() == 1) {
      EXPECT_EQ(bytes > Bytes(0), gives);
    }
  });
}

// So that a loop of calls cannot run ahead at one rank.
TEST(BenchCallTest, EveryRankIsTheRootInTurn) {
  for_each_with_root([](Communicator& communicator, Operation operation, bool in_place) {
    const Bytes once = sent(communicator, operation, in_place, calling_ranks);
    const double own = static_cast<double>(once.value);
    const double least = communicator.all_reduce_value(own, ReduceOp::min, "least");
    const double most = communicator.all_reduce_value(own, ReduceOp::max, "most");
    EXPECT_EQ(least, most);
    EXPECT_GT(least, 0);
    EXPECT_EQ(sent(communicator, operation, in_place, 2 * calling_ranks), 2 * once);
  });
}

TEST(BenchCallTest, WithoutARootThereIsOneTurn) {
  run_communicators(calling_ranks, [&](Communicator& communicator) {
    const BufferSize size = fit(Operation::all_reduce, Bytes(400), DType::f32, calling_ranks);
    BenchCall call(communicator, nullptr, Operation::all_reduce, DType::f32, ReduceOp::sum, 0,
                   size);
    call.prepare(size, {&find_algorithm(Operation::all_reduce, "ring"), false});
    EXPECT_EQ(call.turns(), 1);
  });
}

}  // namespace
}  // namespace ringworld
