// The communicator over threads: worked examples, asynchronous calls, equal bits, and what happens
// when ranks disagree or fail.
#include "collectives/communicator.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/collectives/matrix.h"
#include "tests/collectives/on_threads.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

using std::chrono::milliseconds;

// --- Worked examples -----------------------------------------------------------------------------

TEST(AllReduce, SumsThreeElementsOverEightRanks) {
  run_communicators(8, [](Communicator& communicator) {
    Backend& backend = communicator.backend();
    const double r = communicator.rank() + 1;
    const Tensor x = backend.empty(DType::f32, Shape{3}, Category::communication);
    for (const std::string& name : serving(Operation::all_reduce, 8)) {
      communicator.use(Operation::all_reduce, name);
      backend.upload_values(x, std::vector<double>{r, 2 * r, 3 * r});
      communicator.all_reduce(x, x, ReduceOp::sum, "example").wait();
      EXPECT_EQ(backend.download_values(x), (std::vector<double>{36, 72, 108})) << name;
    }
  });
}

// What one element becomes on every rank when rank r gives value(r).
double reduced(int ranks, DType dtype, ReduceOp op, const std::function<double(int)>& value,
               std::int64_t count = 1) {
  double result = 0;
  run_communicators(ranks, [&](Communicator& communicator) {
    const Tensor x = filled(communicator, dtype, count, value(communicator.rank()));
    communicator.all_reduce(x, x, op, "one value").wait();
    const std::vector<double> values = communicator.backend().download_values(x);
    EXPECT_EQ(values, std::vector<double>(static_cast<std::size_t>(count), values[0]));
    if (communicator.rank() == 0) {
      result = values[0];
    }
  });
  return result;
}

TEST(AllReduce, AveragesExactly) {
  for (const std::int64_t count : {1, 3, 4, 7}) {
    EXPECT_EQ(reduced(
                  4, DType::f32, ReduceOp::avg, [](int r) { return r + 1; }, count),
              2.5);
  }
}

TEST(AllReduce, AverageOfIntegersIsTruncatedTowardsZero) {
  EXPECT_EQ(reduced(4, DType::i32, ReduceOp::avg, [](int r) { return r + 1; }), 2);
  EXPECT_EQ(reduced(4, DType::i32, ReduceOp::avg, [](int r) { return -r - 1; }), -2);
}

TEST(AllReduce, AverageIn16BitsNeitherOverflowsNorVanishes) {
  EXPECT_EQ(reduced(8, DType::f16, ReduceOp::avg, [](int) { return 10000; }), 10000);
  EXPECT_EQ(reduced(8, DType::f16, ReduceOp::avg, [](int) { return 1e-7; }),
            to_float(to_f16(1e-7F)));
  EXPECT_NE(to_float(to_f16(1e-7F)), 0);
}

// 256 + 1 is 256 in bf16: only one rounding at the end finds the right sum, whichever rank comes
// first in a chunk.
TEST(AllReduce, SumIn16BitsIsRoundedOnce) {
  EXPECT_EQ(reduced(
                9, DType::bf16, ReduceOp::sum, [](int r) { return r == 0 ? 256 : 1; }, 9),
            264);
}

TEST(AllReduce, MinimumAndMaximumPassNaNOn) {
  run_communicators(3, [](Communicator& communicator) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      const double value = communicator.rank() == 1 ? nan : communicator.rank();
      EXPECT_TRUE(std::isnan(communicator.all_reduce_value(value, op, "not a number")));
    }
  });
}

TEST(AllReduceValue, IsBlockingAndOfTwoTypes) {
  run_communicators(5, [](Communicator& communicator) {
    const int rank = communicator.rank();
    EXPECT_EQ(communicator.all_reduce_value(rank + 0.5, ReduceOp::sum, "double"), 12.5);
    EXPECT_EQ(communicator.all_reduce_value(rank + 0.5, ReduceOp::avg, "double"), 2.5);
    const std::int64_t large = (std::int64_t{1} << 60) + rank;  // no double holds it
    EXPECT_EQ(communicator.all_reduce_value(large, ReduceOp::max, "integer"), large - rank + 4);
  });
}

TEST(Barrier, ReturnsWhenEveryRankHasCalledIt) {
  std::atomic<int> arrived = 0;
  run_communicators(6, [&](Communicator& communicator) {
    ++arrived;
    communicator.barrier("everybody");
    EXPECT_EQ(arrived, 6);
  });
}

TEST(OneRank, KeepsTheInputAndSendsNothing) {
  run_communicators(1, [](Communicator& communicator) {
    for (const ReduceOp op : all_reduce_ops) {
      const Tensor x = filled(communicator, DType::bf16, 5, 3);
      const Tensor out = filled(communicator, DType::bf16, 5, 0);
      communicator.all_reduce(out, x, op, "alone").wait();
      EXPECT_EQ(communicator.backend().download_values(out), std::vector<double>(5, 3));
    }
    EXPECT_EQ(communicator.traffic().calls, 4);
    EXPECT_EQ(communicator.traffic().bytes_sent, Bytes(0));
  });
}

// --- Traffic -------------------------------------------------------------------------------------

TEST(Traffic, IsCountedByLabel) {
  run_communicators(4, [](Communicator& communicator) {
    const Tensor x = filled(communicator, DType::f32, 400, 1);
    const Tensor half = filled(communicator, DType::f16, 400, 1);
    communicator.all_reduce(x, x, ReduceOp::sum, "gradients").wait();
    communicator.all_reduce(x, x, ReduceOp::sum, "gradients").wait();
    communicator.all_reduce(half, half, ReduceOp::avg, "travels as f32").wait();
    communicator.all_reduce(half, half, ReduceOp::max, "travels as f16").wait();
    const auto& by_label = communicator.traffic_by_label();
    EXPECT_EQ(by_label.at("gradients").calls, 2);
    EXPECT_EQ(by_label.at("gradients").bytes_sent, Bytes(2 * 6 * 100 * 4));
    EXPECT_EQ(by_label.at("travels as f32").bytes_sent, Bytes(6 * 100 * 4));
    EXPECT_EQ(by_label.at("travels as f16").bytes_sent, Bytes(6 * 100 * 2));
    EXPECT_EQ(communicator.traffic().calls, 4);
    EXPECT_EQ(communicator.traffic().bytes_sent, Bytes(6 * 100 * (8 + 4 + 2)));
  });
}

// --- Asynchronous calls --------------------------------------------------------------------------

TEST(Work, ACallMayRunWhileAnotherOneIsMade) {
  run_communicators(4, [](Communicator& communicator) {
    const Tensor x = filled(communicator, DType::f32, 1000, 1);
    const Tensor y = filled(communicator, DType::f64, 10, 2);
    Work first = communicator.all_reduce(x, x, ReduceOp::sum, "first");
    Work second = communicator.all_reduce(y, y, ReduceOp::sum, "second");
    second.wait();
    first.wait();
    EXPECT_EQ(communicator.backend().download_values(x), std::vector<double>(1000, 4));
    EXPECT_EQ(communicator.backend().download_values(y), std::vector<double>(10, 8));
  });
}

TEST(Work, ManyAreWaitedForInAnyOrder) {
  run_communicators(3, [](Communicator& communicator) {
    constexpr int calls = 64;
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < calls; ++i) {
      tensors.push_back(filled(communicator, DType::i32, i, i));
      works.push_back(communicator.all_reduce(tensors[i], tensors[i], ReduceOp::sum,
                                              "number " + std::to_string(i)));
    }
    for (int i = 0; i < calls; ++i) {
      const int chosen = (i * 37 + 11 * communicator.rank()) % calls;  // 37 is prime to 64
      works[chosen].wait();
      EXPECT_EQ(communicator.backend().download_values(tensors[chosen]),
                std::vector<double>(static_cast<std::size_t>(chosen), 3 * chosen));
    }
  });
}

// --- Equal bits ----------------------------------------------------------------------------------

// What the ranks get from random input, as fingerprints: one, when all of them and all repetitions
// agree.
std::set<std::int64_t> fingerprints(int ranks, DType dtype, std::int64_t count,
                                    const CommunicatorOptions& options) {
  std::set<std::int64_t> found;
  std::mutex mutex;
  run_communicators(ranks, options, [&](Communicator& communicator) {
    Backend& backend = communicator.backend();
    const auto rank = static_cast<std::uint32_t>(communicator.rank());
    const Tensor x = backend.empty(dtype, Shape{count}, Category::communication);
    const Tensor out = backend.empty(dtype, Shape{count}, Category::communication);
    backend.normal(x, {.seed = 3, .purpose = Purpose::synthetic_data, .stream = rank}, 0, 0, 1);
    for (int repetition = 0; repetition < 20; ++repetition) {
      communicator.all_reduce(out, x, ReduceOp::sum, "bits").wait();
      const std::lock_guard lock(mutex);
      found.insert(backend.fingerprint(out));
    }
  });
  return found;
}

TEST(AllReduce, GivesTheSameBitsOnEveryRankAndInEveryRepetition) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (const std::string& name : serving(Operation::all_reduce, ranks)) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (const std::int64_t count : {1, 7, 1009}) {
          EXPECT_EQ(
              fingerprints(ranks, dtype, count, {.segment = Bytes(400), .algorithm = name}).size(),
              1u)
              << name << ", " << ranks << " ranks, " << count << " of " << name_of(dtype);
        }
      }
    }
  }
}

// Two NaNs with different payloads: which one is passed on depends on the order of the operands.
TEST(AllReduce, GivesTheSameBitsEvenForNaNs) {
  for (const std::string& name : serving(Operation::all_reduce, 5)) {
    std::set<std::int64_t> found;
    std::mutex mutex;
    run_communicators(5, {.algorithm = name}, [&](Communicator& communicator) {
      Backend& backend = communicator.backend();
      const std::vector<std::uint32_t> nans(40, 0x7fc00000u + communicator.rank());
      const Tensor x = backend.empty(DType::f32, Shape{40}, Category::communication);
      backend.upload(x, std::as_bytes(std::span(nans)));
      communicator.all_reduce(x, x, ReduceOp::sum, "not numbers").wait();
      const std::lock_guard lock(mutex);
      found.insert(backend.fingerprint(x));
    });
    EXPECT_EQ(found.size(), 1u) << name;
  }
}

// A loop over the ranks, bit for bit, whatever the count and the cut.
TEST(Reproducible, AddsInTheOrderOfTheRanks) {
  constexpr std::int64_t count = 101;
  for (const int ranks : {2, 3, 7, 8}) {
    run_communicators(
        ranks, {.segment = Bytes(100), .reproducible = true}, [&](Communicator& communicator) {
          Backend& backend = communicator.backend();
          const auto input = [&](int rank) {
            const Tensor x = backend.empty(DType::f32, Shape{count}, Category::communication);
            backend.normal(x,
                           {.seed = 5,
                            .purpose = Purpose::synthetic_data,
                            .stream = static_cast<std::uint32_t>(rank)},
                           0, 0, 1);
            return x;
          };
          const Tensor expected = input(0);
          for (int rank = 1; rank < ranks; ++rank) {
            backend.combine(expected, input(rank), ReduceOp::sum);
          }
          const Tensor x = input(communicator.rank());
          const Tensor out = backend.empty(DType::f32, Shape{count}, Category::communication);
          communicator.all_reduce(out, x, ReduceOp::sum, "whole").wait();
          EXPECT_EQ(backend.fingerprint(out), backend.fingerprint(expected));

          // In pieces, as buckets are.
          for (std::int64_t first = 0; first < count; first += 13) {
            const std::int64_t piece = std::min<std::int64_t>(13, count - first);
            communicator
                .all_reduce(out.slice(first, piece), x.slice(first, piece), ReduceOp::sum, "piece")
                .wait();
          }
          EXPECT_EQ(backend.fingerprint(out), backend.fingerprint(expected));

          const int root = ranks - 1;
          communicator.reduce(out, x, ReduceOp::sum, root, "root").wait();
          EXPECT_EQ(backend.fingerprint(out), backend.fingerprint(expected));

          Communicator::Counts counts(static_cast<std::size_t>(ranks), 1);
          counts[0] = count - ranks + 1;
          const Tensor part = backend.empty(DType::f32, Shape{counts[communicator.rank()]},
                                            Category::communication);
          communicator.reduce_scatter(part, x, counts, ReduceOp::sum, "parts").wait();
          const std::int64_t first =
              communicator.rank() == 0 ? 0 : counts[0] + communicator.rank() - 1;
          EXPECT_EQ(backend.fingerprint(part),
                    backend.fingerprint(expected.slice(first, part.elements())));
        });
  }
}

TEST(Reproducible, RefusesAlgorithmsThatAddInAnotherOrder) {
  run_communicators(2, {.reproducible = true}, [](Communicator& communicator) {
    expect_error<UsageError>([&] { communicator.use(Operation::all_reduce, "ring"); },
                             {"ring all_reduce", "order of the ranks"});
  });
}

// --- Which algorithm -----------------------------------------------------------------------------

TEST(Choice, IsMadeByNameForEachOperation) {
  const CommunicatorOptions options{.algorithm = "direct",
                                    .algorithms = {{Operation::all_gather, "bruck"}}};
  run_communicators(3, options, [](Communicator& communicator) {
    EXPECT_EQ(communicator.algorithm(Operation::all_reduce, Bytes(8)).name, "direct");
    EXPECT_EQ(communicator.algorithm(Operation::all_gather, Bytes(8)).name, "bruck");
    EXPECT_EQ(communicator.algorithm(Operation::barrier, Bytes(4)).name, "dissemination");
    communicator.use(Operation::all_reduce, "tree");
    EXPECT_EQ(communicator.algorithm(Operation::all_reduce, Bytes(8)).name, "tree");
    expect_error<UsageError>([&] { communicator.use(Operation::scatter, "ring"); },
                             {"no algorithm \"ring\" for scatter", "tree"});
  });
}

TEST(Choice, OfAnAlgorithmThatRefusesTheRanksIsRefused) {
  Algorithm even = find_algorithm(Operation::all_reduce, "ring");
  even.name = "ring over an even number";
  even.refuses = [](int ranks) -> std::string {
    return ranks % 2 == 0 ? "" : "the number of ranks must be even";
  };
  register_algorithm(even);
  run_communicators(
      2, [&](Communicator& communicator) { communicator.use(Operation::all_reduce, even.name); });
  run_communicators(3, [&](Communicator& communicator) {
    expect_error<UsageError>([&] { communicator.use(Operation::all_reduce, even.name); },
                             {"ring over an even number", "3 ranks", "must be even"});
  });
}

TEST(AllToAll, CountsOfTheirOwnAreRefusedByAnAlgorithmThatNeedsEqualOnes) {
  run_communicators(2, [](Communicator& communicator) {
    communicator.use(Operation::all_to_all, "bruck");
    const Tensor x = filled(communicator, DType::f32, 4, 1);
    const Tensor out = filled(communicator, DType::f32, 4, 1);
    expect_error<UsageError>(
        [&] {
          std::ignore = communicator.all_to_all(out, {2, 2}, x, {2, 2}, "counted");
        },
        {"bruck all_to_all needs equal counts"});
  });
}

TEST(AllToAll, WithNothingToSendSucceeds) {
  run_communicators(3, [](Communicator& communicator) {
    const Tensor nothing = filled(communicator, DType::f32, 0, 0);
    const Tensor out = filled(communicator, DType::f32, 0, 0);
    communicator.all_to_all(out, {0, 0, 0}, nothing, {0, 0, 0}, "nothing").wait();
    EXPECT_EQ(communicator.traffic().bytes_sent, Bytes(0));
  });
}

// --- Groups --------------------------------------------------------------------------------------

TEST(Subgroup, GroupsMayOverlap) {
  run_communicators(6, [](Communicator& communicator) {
    const int rank = communicator.rank();
    // A grid of 2 rows and 3 columns: every rank is in a row and in a column.
    const int row = rank / 3;
    const int column = rank % 3;
    const auto of_row = communicator.subgroup({3 * row, 3 * row + 1, 3 * row + 2});
    const auto of_column = communicator.subgroup({column, column + 3});
    EXPECT_EQ(of_row->rank(), column);
    EXPECT_EQ(of_column->rank(), row);
    EXPECT_EQ(of_row->world_size(), 3);

    const Tensor a = filled(communicator, DType::f32, 100, rank);
    const Tensor b = filled(communicator, DType::f32, 7, rank);
    const Tensor c = filled(communicator, DType::f32, 7, rank);
    Work first = of_row->all_reduce(a, a, ReduceOp::sum, "row");
    Work second = of_column->all_reduce(b, b, ReduceOp::sum, "column");
    Work third = communicator.all_reduce(c, c, ReduceOp::sum, "all");
    third.wait();
    second.wait();
    first.wait();
    EXPECT_EQ(communicator.backend().download_values(a), std::vector<double>(100, 9 * row + 3));
    EXPECT_EQ(communicator.backend().download_values(b), std::vector<double>(7, 2 * column + 3));
    EXPECT_EQ(communicator.backend().download_values(c), std::vector<double>(7, 15));
    // One stream, one account.
    EXPECT_EQ(of_row->traffic().calls, 3);
    EXPECT_EQ(communicator.traffic().calls, 3);
    EXPECT_EQ(communicator.traffic_by_label().at("row").calls, 1);
  });
}

TEST(Subgroup, RanksAreCountedInTheOrderGiven) {
  run_communicators(4, [](Communicator& communicator) {
    if (communicator.rank() == 2) {
      return;
    }
    const auto group = communicator.subgroup({3, 0, 1});
    const Tensor x = filled(communicator, DType::i32, 5, communicator.rank());
    group->broadcast(x, 0, "from rank 3").wait();
    EXPECT_EQ(communicator.backend().download_values(x), std::vector<double>(5, 3));

    const auto pair = communicator.rank() == 1 ? nullptr : group->subgroup({1, 0});
    if (pair != nullptr) {
      pair->broadcast(x, 1, "from rank 3 again").wait();
      EXPECT_EQ(pair->rank(), communicator.rank() == 0 ? 0 : 1);
    }
  });
}

TEST(Subgroup, FinishesItsCallsBeforeItGoes) {
  run_communicators(3, [](Communicator& communicator) {
    const Tensor x = filled(communicator, DType::f32, 1000, 1);
    {
      const auto group = communicator.subgroup({0, 1, 2});
      std::ignore = group->all_reduce(x, x, ReduceOp::sum, "left alone");
    }
    EXPECT_EQ(communicator.backend().download_values(x), std::vector<double>(1000, 3));
  });
}

TEST(Subgroup, OfRanksThatDoNotFitIsRefused) {
  run_communicators(3, [](Communicator& communicator) {
    const int other = (communicator.rank() + 1) % 3;
    expect_error<std::invalid_argument>([&] { communicator.subgroup({other}); }, {"none of"});
    expect_error<std::invalid_argument>([&] { communicator.subgroup({0, 1, 2, 3}); }, {"0, 1, 2"});
    expect_error<std::invalid_argument>([&] { communicator.subgroup({0, 0, 1, 2}); }, {"0, 0"});
  });
}

// --- Disagreement and failure --------------------------------------------------------------------

// Every rank makes its call, and must get a CommunicationError that says what it called and names
// itself; at least one learns what another rank called instead.
void expect_disagreement(const std::function<Work(Communicator&, const Tensor&)>& call,
                         const std::string& what, int ranks = 3) {
  std::atomic<int> told = 0;
  run_on_threads(ranks, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({.poison = true}), 1);
    Communicator communicator(transport, *backend, {.timeout = milliseconds(300)});
    const Tensor x = filled(communicator, DType::f32, 12, 1);
    const std::string self = "rank " + std::to_string(transport.rank()) + " ";
    const std::string message =
        expect_error<CommunicationError>([&] { call(communicator, x).wait(); },
                                         {what, "\"contract", "call 1", self, "failed: rank "});
    // Nothing after it succeeds either.
    expect_error<CommunicationError>([&] { communicator.barrier("later"); }, {"contract"});
    told += message.find(" instead") != std::string::npos ? 1 : 0;
  });
  EXPECT_GT(told, 0);
}

TEST(Disagreement, OnTheCount) {
  expect_disagreement(
      [](Communicator& communicator, const Tensor& x) {
        const Tensor part = x.slice(0, communicator.rank() == 1 ? 11 : 12);
        return communicator.all_reduce(part, part, ReduceOp::sum, "contract");
      },
      " elements of f32, sum");
}

TEST(Disagreement, OnTheDType) {
  expect_disagreement(
      [](Communicator& communicator, const Tensor& x) {
        const Tensor same_bytes = filled(communicator, DType::i32, 12, 1);
        const Tensor& mine = communicator.rank() == 1 ? same_bytes : x;
        return communicator.all_reduce(mine, mine, ReduceOp::max, "contract");
      },
      "12 elements of ");
}

TEST(Disagreement, OnTheReduction) {
  expect_disagreement(
      [](Communicator& communicator, const Tensor& x) {
        const ReduceOp op = communicator.rank() == 2 ? ReduceOp::avg : ReduceOp::sum;
        return communicator.all_reduce(x, x, op, "contract");
      },
      "all_reduce");
}

TEST(Disagreement, OnTheRoot) {
  expect_disagreement(
      [](Communicator& communicator, const Tensor& x) {
        return communicator.broadcast(x, communicator.rank() == 0 ? 0 : 1, "contract");
      },
      "broadcast", 2);  // of three ranks, one could have passed its part on to one that agrees
}

TEST(Disagreement, OnTheLabel) {
  expect_disagreement(
      [](Communicator& communicator, const Tensor& x) {
        return communicator.all_reduce(x, x, ReduceOp::sum,
                                       communicator.rank() == 0 ? "contract a" : "contract b");
      },
      "all_reduce");
}

TEST(Disagreement, OnTheOperation) {
  expect_disagreement(
      [](Communicator& communicator, const Tensor& x) {
        return communicator.rank() == 0
                   ? communicator.all_reduce(x, x, ReduceOp::sum, "contract")
                   : communicator.reduce_scatter(x.slice(communicator.rank() * 4, 4), x,
                                                 ReduceOp::sum, "contract");
      },
      "12 elements of f32");
}

TEST(Disagreement, OnTheOrder) {
  expect_disagreement(
      [](Communicator& communicator, const Tensor& x) {
        const bool swapped = communicator.rank() == 1;
        Work first =
            communicator.all_reduce(x, x, ReduceOp::sum, swapped ? "contract b" : "contract a");
        std::ignore =
            communicator.all_reduce(x, x, ReduceOp::sum, swapped ? "contract a" : "contract b");
        return first;
      },
      "all_reduce");
}

TEST(Missing, ARankThatDoesNotCallIsNamed) {
  run_on_threads(2, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({}), 1);
    if (transport.rank() == 1) {
      return;
    }
    Communicator communicator(transport, *backend);
    const Tensor x = filled(communicator, DType::f32, 12, 1);
    expect_error<CommunicationError>(
        [&] { communicator.all_reduce(x, x, ReduceOp::sum, "alone").wait(); },
        {"all_reduce \"alone\" (call 1: 12 elements of f32, sum, recursive_doubling)", "rank 0",
         "rank 1 has returned"});
  });
}

// Rank 1, for which rank 0 waits, itself waits in another group.
TEST(Missing, WhatRanksOfOtherGroupsAreInIsTold) {
  run_on_threads(3, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({}), 1);
    Communicator world(transport, *backend, {.timeout = std::chrono::milliseconds(500)});
    const int own = world.rank();
    const Tensor x = filled(world, DType::f32, 12, 1);
    const auto waits = [&](std::vector<int> ranks, const std::string& label,
                           std::initializer_list<std::string_view> facts) {
      const auto group = world.subgroup(ranks);
      expect_error<CommunicationError>(
          [&] { group->all_reduce(x, x, ReduceOp::sum, label).wait(); }, facts);
    };
    if (own == 0) {
      waits({0, 1}, "first pair", {"of other groups: rank 2"});
    } else if (own == 1) {
      waits({1, 2}, "second pair", {"of other groups: rank 0"});
    } else {
      waits({2, 0}, "third pair", {"of other groups: rank 1"});
    }
  });
}

// With the default timeout of a minute: the others must not sit it out.
TEST(Failure, AnExceptionInOneRankEndsAll) {
  std::atomic<int> ended_by_the_failure = 0;
  expect_error<DataError>(
      [&] {
        run_communicators(4, [&](Communicator& communicator) {
          const Tensor x = filled(communicator, DType::f32, 12, 1);
          if (communicator.rank() == 2) {
            throw DataError("file gone");
          }
          expect_error<CommunicationError>(
              [&] { communicator.all_reduce(x, x, ReduceOp::sum, "unanswered").wait(); },
              {"unanswered", "rank 2"});
          ++ended_by_the_failure;
        });
      },
      {"rank 2: file gone"});
  EXPECT_EQ(ended_by_the_failure, 3);
}

// A rank that throws while a call of its own is under way must not wait for it.
TEST(Failure, AnExceptionAbandonsPendingCalls) {
  expect_error<std::runtime_error>(
      [] {
        run_communicators(2, [](Communicator& communicator) {
          const Tensor x = filled(communicator, DType::f32, 12, 1);
          if (communicator.rank() == 0) {
            std::ignore = communicator.all_reduce(x, x, ReduceOp::sum, "never answered");
            throw std::runtime_error("changed my mind");
          }
          communicator.barrier("something else");
        });
      },
      {"changed my mind"});
}

TEST(Arguments, ThatDoNotFitAreRefusedByTheCall) {
  run_communicators(2, [](Communicator& communicator) {
    const Tensor x = filled(communicator, DType::f32, 12, 1);
    const Tensor half = filled(communicator, DType::f16, 12, 1);
    const auto expect_refused = [](const auto& call, std::string_view fact) {
      expect_error<std::invalid_argument>([&] { std::ignore = call(); }, {fact});
    };
    expect_refused([&] { return communicator.all_reduce(x, half, ReduceOp::sum, ""); },
                   "f32 and f16 differ");
    expect_refused([&] { return communicator.all_reduce(x, x.slice(0, 6), ReduceOp::sum, ""); },
                   "12 and 6 elements do not fit blocks of 6");
    expect_refused([&] { return communicator.all_gather(x, half.slice(0, 5), ""); }, "differ");
    expect_refused(
        [&] { return communicator.all_reduce(x.slice(0, 6), x.slice(1, 6), ReduceOp::sum, ""); },
        "overlap");
    expect_refused([&] { return communicator.broadcast(x, 2, ""); }, "root 2");
    expect_refused([&] { return communicator.reduce(x, x, ReduceOp::sum, -1, ""); }, "root -1");
    expect_refused(
        [&] {
          return communicator.all_gather(x, x.slice(0, 4), {4, 4, 4}, "");
        },
        "counts 4, 4, 4 in a world of 2 ranks");
    expect_refused(
        [&] {
          return communicator.all_gather(x, x.slice(0, 4), {-4, 16}, "");
        },
        "counts -4, 16");
    expect_refused(
        [&] {
          return communicator.reduce_scatter(x.slice(0, 5), x, {6, 6}, ReduceOp::sum, "");
        },
        "do not fit blocks of 6, 6");
    expect_refused([&] { return communicator.all_to_all(x, x, ""); }, "in place");
    expect_refused(
        [&] {
          return communicator.all_to_all(half, {6, 6}, x, {6, 6}, "");
        },
        "f16 and f32 differ");
    const Tensor other = filled(communicator, DType::f32, 12, 1);
    expect_refused(
        [&] {
          return communicator.all_to_all(other, {6, 6}, x, {6, 5}, "");
        },
        "blocks of 6, 5");
    expect_refused([&] { return communicator.all_to_all(other.slice(0, 5), x.slice(0, 5), ""); },
                   "5 elements");
  });
  EXPECT_THROW(run_communicators(1, {.algorithm = "telepathy"}, [](Communicator&) {}), UsageError);
}

}  // namespace
}  // namespace ringworld
