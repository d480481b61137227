// Ranks of one copy of the model read the same sequences, and copies read different ones: whoever
// does not is named before the first step.
#include "training/batch_check.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/collectives/on_threads.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

constexpr std::int64_t length = 4;

// dp=2,pp=2,tp=2, where rank `other` has another seed, or other data.
void check(int other, std::uint64_t its_seed, std::uint64_t its_data) {
  run_communicators(8, [&](Communicator& world) {
    const Mesh mesh(world, {.data = 2, .pipeline = 2, .tensor = 2});
    const bool differs = world.rank() == other;
    const TokenDataset data =
        whole_dataset(TokenStream::synthetic(11, 400, differs ? its_data : 3), length);
    check_batches(mesh, data, differs ? its_seed : 1, plan_batches(8, 2, 2));
  });
}

TEST(BatchCheck, AgreesWhereAllRanksReadTheSameData) {
  check(-1, 1, 3);
}

TEST(BatchCheck, ARankOfAModelThatReadsOtherSequencesIsNamed) {
  for (const int rank : {1, 2, 3}) {
    expect_error<DataError>([&] { check(rank, 2, 3); },
                            {"rank " + std::to_string(rank), "rank 0", "--seed"});
  }
  expect_error<DataError>([&] { check(7, 2, 3); }, {"rank 7", "rank 4"});
}

// The same sequences by number, of another file.
TEST(BatchCheck, OtherTokensUnderTheSameNumbersAreFound) {
  expect_error<DataError>([&] { check(5, 1, 4); }, {"rank 5", "rank 4", "--data"});
}

// Both ranks of a data axis with the same coordinate would read the same sequences.
TEST(BatchCheck, CopiesThatReadTheSameSequenceAreNamed) {
  expect_error<DataError>(
      [] {
        run_communicators(2, [](Communicator& world) {
          const Mesh mesh(world, {.data = 2});
          const TokenDataset data = whole_dataset(TokenStream::synthetic(11, 400, 3), length);
          // In another order, rank 1's half of the sequences is no longer the other half.
          const BatchPlan plan = plan_batches(80, 40, 2);
          check_batches(mesh, data, world.rank() == 0 ? 1 : 2, plan);
        });
      },
      {"ranks 0 and 1", "both read sequence"});
}

}  // namespace
}  // namespace ringworld
