// The communicator over threads: worked examples, asynchronous calls, equal bits, and what happens
// when ranks disagree or fail.
#include "collectives/communicator.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
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
    backend.upload_values(x, std::vector<double>{r, 2 * r, 3 * r});
    communicator.all_reduce(x, x, ReduceOp::sum, "example").wait();
    EXPECT_EQ(backend.download_values(x), (std::vector<double>{36, 72, 108}));
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

TEST(AllReduce, GivesTheSameBitsOnEveryRankAndInEveryRepetition) {
  constexpr std::int64_t count = 1009;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      std::vector<std::set<std::int64_t>> fingerprints(ranks);
      run_communicators(ranks, {.segment = Bytes(100)}, [&](Communicator& communicator) {
        Backend& backend = communicator.backend();
        const auto rank = static_cast<std::uint32_t>(communicator.rank());
        const Tensor x = backend.empty(dtype, Shape{count}, Category::communication);
        const Tensor out = backend.empty(dtype, Shape{count}, Category::communication);
        backend.normal(x, {.seed = 3, .purpose = Purpose::synthetic_data, .stream = rank}, 0, 0, 1);
        for (int repetition = 0; repetition < 20; ++repetition) {
          communicator.all_reduce(out, x, ReduceOp::sum, "bits").wait();
          fingerprints[rank].insert(backend.fingerprint(out));
        }
      });
      for (const auto& of_rank : fingerprints) {
        EXPECT_EQ(of_rank.size(), 1u) << ranks << " ranks, " << name_of(dtype);
        EXPECT_EQ(of_rank, fingerprints[0]) << ranks << " ranks, " << name_of(dtype);
      }
    }
  }
}

// --- Disagreement and failure --------------------------------------------------------------------

// Every rank makes its call, and must get a CommunicationError that says what it called and names
// itself and a peer.
void expect_disagreement(const std::function<Work(Communicator&, const Tensor&)>& call,
                         const std::string& what) {
  run_on_threads(3, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({.poison = true}), 1);
    Communicator communicator(transport, *backend, {.timeout = milliseconds(300)});
    const Tensor x = filled(communicator, DType::f32, 12, 1);
    const std::string self = "rank " + std::to_string(transport.rank()) + " ";
    expect_error<CommunicationError>([&] { call(communicator, x).wait(); },
                                     {what, "\"contract", "call 1", self, "for rank"});
    // Nothing after it succeeds either.
    expect_error<CommunicationError>([&] { communicator.barrier("later"); }, {"contract"});
  });
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
      "broadcast");
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
        {"all_reduce \"alone\" (call 1: 12 elements of f32, sum)", "rank 0",
         "rank 1 has returned"});
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
                   "12 elements are not 1 times 6");
    expect_refused([&] { return communicator.all_gather(x, half.slice(0, 5), ""); }, "differ");
    expect_refused(
        [&] { return communicator.all_reduce(x.slice(0, 6), x.slice(1, 6), ReduceOp::sum, ""); },
        "overlap");
    expect_refused([&] { return communicator.broadcast(x, 2, ""); }, "root 2");
  });
  EXPECT_THROW(run_communicators(1, {.algorithm = "telepathy"}, [](Communicator&) {}), UsageError);
}

}  // namespace
}  // namespace ringworld
