// Messages between two ranks, on threads as ranks: both directions at once, any size, in order,
// among collectives, and ranks that do not agree about one.
#include <array>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/collectives/on_threads.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

// What rank `from` sends to rank `to` as its message `number`.
double value_of(int from, int to, int number) {
  return from * 100 + to * 10 + number;
}

void expect_all(Communicator& communicator, const Tensor& x, double value) {
  for (const double element : communicator.backend().download_values(x)) {
    ASSERT_EQ(element, value);
  }
}

// Both send before either receives.
TEST(PointToPoint, TwoRanksSendBeforeTheyReceive) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    for (const std::int64_t count : {0, 1, 7, 1000, 1 << 20}) {
      run_communicators(2, [&](Communicator& communicator) {
        const int own = communicator.rank();
        const int other = 1 - own;
        const Tensor x = filled(communicator, dtype, count, own + 1);
        const Tensor y = filled(communicator, dtype, count, -1);
        Work sending = communicator.send(x, other, "there and back");
        communicator.receive(y, other, "there and back").wait();
        sending.wait();
        expect_all(communicator, y, other + 1);
        expect_all(communicator, x, own + 1);
      });
    }
  }
}

// Round a ring of ranks, with several messages of each to the next under way.
TEST(PointToPoint, MessagesArriveInTheOrderOfTheirSending) {
  constexpr int messages = 9;
  for (const int ranks : {2, 3, 5}) {
    run_communicators(ranks, [&](Communicator& communicator) {
      const int own = communicator.rank();
      const int next = (own + 1) % ranks;
      const int previous = (own + ranks - 1) % ranks;
      std::vector<Work> sends;
      for (int i = 0; i < messages; ++i) {
        // Small and large in turn: neither overtakes the other.
        const Tensor x =
            filled(communicator, DType::f32, i % 2 == 0 ? 3 : 100'000, value_of(own, next, i));
        sends.push_back(communicator.send(x, next, "ring"));
      }
      for (int i = 0; i < messages; ++i) {
        const Tensor y = filled(communicator, DType::f32, i % 2 == 0 ? 3 : 100'000, -1);
        communicator.receive(y, previous, "ring").wait();
        expect_all(communicator, y, value_of(previous, own, i));
      }
      for (Work& send : sends) {
        send.wait();
      }
    });
  }
}

// Messages of different ranks do not wait for each other: everyone receives from the last peer
// first.
TEST(PointToPoint, SeveralPeersAtOnce) {
  constexpr int ranks = 4;
  run_communicators(ranks, [](Communicator& communicator) {
    const int own = communicator.rank();
    std::vector<Work> sends;
    for (int to = 0; to < ranks; ++to) {
      if (to != own) {
        const Tensor x = filled(communicator, DType::f64, 50, value_of(own, to, 0));
        sends.push_back(communicator.send(x, to, "everyone"));
      }
    }
    for (int from = ranks - 1; from >= 0; --from) {
      if (from != own) {
        const Tensor y = filled(communicator, DType::f64, 50, -1);
        communicator.receive(y, from, "everyone").wait();
        expect_all(communicator, y, value_of(from, own, 0));
      }
    }
    for (Work& send : sends) {
      send.wait();
    }
  });
}

// A send that is under way does not hold up the collectives after it, as long as every pair of
// ranks has its messages in one order.
TEST(PointToPoint, CollectivesGoOnWhileASendIsUnderWay) {
  for (const std::int64_t count : {4, 100'000}) {
    run_communicators(3, [&](Communicator& communicator) {
      const int own = communicator.rank();
      const Tensor sum = filled(communicator, DType::f32, count, own + 1);
      communicator.all_reduce(sum, sum, ReduceOp::sum, "before").wait();
      expect_all(communicator, sum, 6);
      const Tensor x = filled(communicator, DType::f32, count, own + 10);
      const Tensor y = filled(communicator, DType::f32, count, -1);
      Work sending;
      Work receiving;
      if (own < 2) {
        sending = communicator.send(x, own + 1, "down");
      }
      if (own > 0) {
        receiving = communicator.receive(y, own - 1, "down");
      }
      Work reducing = communicator.all_reduce(sum, sum, ReduceOp::sum, "after");
      reducing.wait();
      expect_all(communicator, sum, 18);
      sending.wait();
      receiving.wait();
      expect_all(communicator, y, own == 0 ? -1 : own + 9);
    });
  }
}

// By the order of calls, and by nothing else: a collective between a send and its receive is the
// call that the send meets.
TEST(PointToPoint, ACollectiveBetweenSendAndReceiveIsADisagreement) {
  expect_error<CommunicationError>(
      [] {
        run_communicators(2, [](Communicator& communicator) {
          const Tensor x = filled(communicator, DType::f32, 100'000, 1);
          if (communicator.rank() == 0) {
            Work sending = communicator.send(x, 1, "activations");
            communicator.all_reduce(x, x, ReduceOp::sum, "gradients").wait();
            sending.wait();
          } else {
            communicator.all_reduce(x, x, ReduceOp::sum, "gradients").wait();
            communicator.receive(x, 0, "activations").wait();
          }
        });
      },
      {"gradients", "another call"});
}

// Groups share a stream and number their messages on their own.
TEST(PointToPoint, GroupsOfTheSameRanksKeepTheirMessagesApart) {
  run_communicators(4, [](Communicator& world) {
    const int own = world.rank();
    const auto pair = world.subgroup(own % 2 == 0 ? std::vector{0, 2} : std::vector{1, 3});
    const Tensor x = filled(world, DType::f32, 5, own);
    const Tensor y = filled(world, DType::f32, 5, -1);
    Work sending = pair->send(x, 1 - pair->rank(), "pair");
    pair->receive(y, 1 - pair->rank(), "pair").wait();
    sending.wait();
    expect_all(world, y, own ^ 2);
  });
}

// What of two ranks' words differs, and what the error of either must say.
TEST(PointToPoint, RanksThatDisagreeAreToldBothCalls) {
  struct Call {
    std::int64_t count;
    DType dtype;
    const char* label;
  };
  const Call sent{12, DType::f32, "activations"};
  for (const Call& received :
       {Call{12, DType::f32, "gradients"}, Call{13, DType::f32, "activations"},
        Call{12, DType::i32, "activations"}}) {
    for (const bool large : {false, true}) {
      const std::int64_t times = large ? 10'000 : 1;
      const std::string message = expect_error<CommunicationError>(
          [&] {
            run_communicators(
                2, {.timeout = std::chrono::seconds(20)}, [&](Communicator& communicator) {
                  if (communicator.rank() == 0) {
                    const Tensor x = filled(communicator, sent.dtype, sent.count * times, 1);
                    communicator.send(x, 1, sent.label).wait();
                  } else {
                    const Tensor y =
                        filled(communicator, received.dtype, received.count * times, 0);
                    communicator.receive(y, 0, received.label).wait();
                  }
                });
          },
          {"send", "receive", sent.label, received.label});
      EXPECT_NE(message.find(std::to_string(received.count * times) + " elements of " +
                             std::string(name_of(received.dtype))),
                std::string::npos)
          << message;
      EXPECT_NE(message.find(std::to_string(sent.count * times) + " elements of f32"),
                std::string::npos)
          << message;
    }
  }
}

TEST(PointToPoint, ACollectiveIsNoReceive) {
  expect_error<CommunicationError>(
      [] {
        run_communicators(2, {.timeout = std::chrono::seconds(20)}, [](Communicator& communicator) {
          const Tensor x = filled(communicator, DType::f32, 100'000, 1);
          if (communicator.rank() == 0) {
            communicator.send(x, 1, "activations").wait();
          } else {
            communicator.all_reduce(x, x, ReduceOp::sum, "gradients").wait();
          }
        });
      },
      {"send", "all_reduce", "activations", "gradients"});
}

TEST(PointToPoint, AReceiveThatNobodySendsForEndsAfterTheTimeout) {
  expect_error<CommunicationError>(
      [] {
        run_communicators(2, {.timeout = std::chrono::milliseconds(300)},
                          [](Communicator& communicator) {
                            if (communicator.rank() == 1) {
                              const Tensor y = filled(communicator, DType::f32, 3, 0);
                              communicator.receive(y, 0, "activations").wait();
                            }
                          });
      },
      {"receive", "activations", "rank 0"});
}

TEST(PointToPoint, ThereIsNoMessageToOneselfOrToNobody) {
  run_communicators(2, [](Communicator& communicator) {
    const Tensor x = filled(communicator, DType::f32, 1, 0);
    for (const int peer : {communicator.rank(), -1, 2}) {
      EXPECT_THROW((void)communicator.send(x, peer, "to whom"), std::invalid_argument);
      EXPECT_THROW((void)communicator.receive(x, peer, "from whom"), std::invalid_argument);
    }
  });
}

TEST(PointToPoint, BytesAreCountedOnceAtTheSender) {
  run_communicators(2, [](Communicator& communicator) {
    const Tensor x = filled(communicator, DType::f32, 25, 0);
    if (communicator.rank() == 0) {
      communicator.send(x, 1, "counted").wait();
    } else {
      communicator.receive(x, 0, "counted").wait();
    }
    EXPECT_EQ(communicator.traffic().bytes_sent, Bytes(communicator.rank() == 0 ? 100 : 0));
  });
}

}  // namespace
}  // namespace ringworld
