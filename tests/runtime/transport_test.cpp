// The verbs over threads: matching, progress, timeouts, and exceptions that end all ranks.
#include "runtime/transport.h"

#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

using std::chrono::milliseconds;

// A rank with a backend of its own.
struct Rank {
  Transport& transport;
  std::unique_ptr<Backend> backend = make_cpu_backend(Device::create({.poison = true}), 1);
  int self = transport.rank();

  explicit Rank(Transport& its) : transport(its) {
    transport.bind(*backend);
    transport.set_timeout(std::chrono::seconds(30));
  }

  Tensor tensor(double value, std::int64_t count = 1) {
    const Tensor x = backend->empty(DType::f32, Shape{count}, Category::communication);
    backend->fill(x, value);
    return x;
  }
  double value_of(const Tensor& x) { return backend->download_values(x)[0]; }
};

void run_ranks(int ranks, const std::function<void(Rank&)>& body) {
  run_on_threads(ranks, [&](Transport& transport) {
    Rank rank(transport);
    body(rank);
  });
}

TEST(Threads, RankAndWorld) {
  std::vector<int> ranks(3, -1);
  run_ranks(3, [&](Rank& rank) {
    ranks[rank.self] = rank.self;
    EXPECT_EQ(rank.transport.world_size(), 3);
    EXPECT_EQ(rank.transport.local_ranks(), 3);
    EXPECT_EQ(rank.transport.description(), "threads");
  });
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 2}));
}

TEST(Threads, MessagesMeetInTheOrderOfPosting) {
  run_ranks(2, [](Rank& rank) {
    if (rank.self == 0) {
      const Tensor a = rank.tensor(1);
      const Tensor b = rank.tensor(2);
      const Tensor c = rank.tensor(3);
      const auto first = rank.transport.send(1, 7, a);
      const auto second = rank.transport.send(1, 7, b);
      const auto other = rank.transport.send(1, 8, c);
      rank.transport.wait(other);
      rank.transport.wait(second);
      rank.transport.wait(first);
    } else {
      const Tensor a = rank.tensor(0);
      const Tensor b = rank.tensor(0);
      const auto first = rank.transport.receive(0, 7, a);
      const auto second = rank.transport.receive(0, 7, b);
      const auto other = rank.transport.read(0, 8, DType::f32, 1);
      rank.transport.wait(second);
      rank.transport.wait(first);
      rank.transport.wait(other);
      EXPECT_EQ(rank.value_of(a), 1);
      EXPECT_EQ(rank.value_of(b), 2);
      EXPECT_EQ(rank.value_of(rank.transport.reading(other)), 3);
      rank.transport.done_reading(other);
    }
  });
}

// The sender may not touch what is being read.
TEST(Threads, ASendIsOverWhenItsReaderIsDone) {
  run_ranks(2, [](Rank& rank) {
    if (rank.self == 0) {
      const Tensor x = rank.tensor(1);
      const auto ticket = rank.transport.send(1, 0, x);
      rank.transport.wait(rank.transport.receive(1, 1, rank.tensor(0)));  // it has begun to read
      EXPECT_FALSE(rank.transport.test(ticket));
      rank.transport.wait(rank.transport.send(1, 2, rank.tensor(0)));
      rank.transport.wait(ticket);
    } else {
      const auto ticket = rank.transport.read(0, 0, DType::f32, 1);
      rank.transport.wait(ticket);
      rank.transport.wait(rank.transport.send(0, 1, rank.tensor(0)));
      rank.transport.wait(rank.transport.receive(0, 2, rank.tensor(0)));
      EXPECT_EQ(rank.value_of(rank.transport.reading(ticket)), 1);
      rank.transport.done_reading(ticket);
    }
  });
}

// Both wait for their send first, which completes only because their receives make progress too.
TEST(Threads, EverythingPostedMakesProgressDuringAnyWait) {
  run_ranks(2, [](Rank& rank) {
    const Tensor mine = rank.tensor(rank.self);
    const Tensor theirs = rank.tensor(-1);
    const auto send = rank.transport.send(1 - rank.self, 0, mine);
    const auto receive = rank.transport.receive(1 - rank.self, 0, theirs);
    rank.transport.wait(send);
    rank.transport.wait(receive);
    EXPECT_EQ(rank.value_of(theirs), 1 - rank.self);
  });
}

TEST(Threads, WaitAnyReturnsWhatIsComplete) {
  run_ranks(3, [](Rank& rank) {
    if (rank.self == 0) {
      const Tensor from_one = rank.tensor(0);
      const Tensor from_two = rank.tensor(0);
      const std::vector<Transport::Ticket> tickets = {rank.transport.receive(1, 0, from_one),
                                                      rank.transport.receive(2, 0, from_two)};
      ASSERT_EQ(rank.transport.wait_any(tickets), 1u);
      EXPECT_EQ(rank.value_of(from_two), 2);
      // Only now is rank 1 told to send.
      const Tensor go = rank.tensor(0);
      rank.transport.wait(rank.transport.send(1, 1, go));
      rank.transport.wait(tickets[0]);
      EXPECT_EQ(rank.value_of(from_one), 1);
    } else {
      const Tensor x = rank.tensor(rank.self);
      if (rank.self == 1) {
        rank.transport.wait(rank.transport.receive(0, 1, rank.tensor(0)));
      }
      rank.transport.wait(rank.transport.send(0, 0, x));
    }
  });
}

TEST(Threads, AWaitThatTimesOutNamesBothRanksAndBreaksTheTransport) {
  run_ranks(2, [](Rank& rank) {
    rank.transport.set_timeout(milliseconds(100));
    // Both send, and neither receives.
    const Tensor x = rank.tensor(1);
    const auto ticket = rank.transport.send(1 - rank.self, 0, x);
    const std::string self = "rank " + std::to_string(rank.self);
    const std::string peer = "for rank " + std::to_string(1 - rank.self) + " to receive";
    expect_error<CommunicationError>([&] { rank.transport.wait(ticket); }, {self, peer});
    expect_error<CommunicationError>([&] { rank.transport.send(1 - rank.self, 5, x); }, {self});
  });
}

TEST(Threads, SizesThatDisagreeAreAnErrorOnBothSides) {
  run_ranks(2, [](Rank& rank) {
    const Tensor x = rank.tensor(1, rank.self + 3);
    const auto ticket =
        rank.self == 0 ? rank.transport.send(1, 0, x) : rank.transport.receive(0, 0, x);
    expect_error<CommunicationError>(
        [&] { rank.transport.wait(ticket); },
        {"another call", "rank 0 sends 3 elements", "rank 1 receives 4"});
  });
}

TEST(Threads, SignaturesThatDisagreeAreAnErrorOnBothSides) {
  run_ranks(2, [](Rank& rank) {
    const Tensor x = rank.tensor(1);
    const auto ticket =
        rank.self == 0 ? rank.transport.send(1, 0, x) : rank.transport.receive(0, 1, x);
    expect_error<CommunicationError>([&] { rank.transport.wait(ticket); }, {"another call"});
  });
}

TEST(Threads, ARankThatHasReturnedIsNotWaitedFor) {
  run_ranks(2, [](Rank& rank) {
    if (rank.self == 1) {
      return;
    }
    rank.transport.set_timeout(milliseconds(0));  // for ever
    const auto ticket = rank.transport.receive(1, 0, rank.tensor(0));
    expect_error<CommunicationError>([&] { rank.transport.wait(ticket); },
                                     {"rank 0", "rank 1 has returned"});
  });
}

TEST(Threads, AbandonEndsAWaitFromAnotherThread) {
  run_ranks(2, [](Rank& rank) {
    rank.transport.set_timeout(milliseconds(0));  // for ever
    const auto ticket = rank.transport.receive(1 - rank.self, 0, rank.tensor(0));
    std::thread other([&] { rank.transport.abandon(); });
    EXPECT_THROW(rank.transport.wait(ticket), CommunicationError);
    other.join();
  });
}

template <typename E>
void expect_rethrown(const E& error, const std::string& message) {
  try {
    run_ranks(3, [&](Rank& rank) {
      if (rank.self == 1) {
        throw error;
      }
      rank.transport.set_timeout(milliseconds(0));  // for ever
      rank.transport.wait(rank.transport.receive(2 - rank.self, 0, rank.tensor(0)));
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const E& caught) {
    EXPECT_EQ(caught.what(), message);
    if constexpr (std::is_base_of_v<Error, E>) {
      EXPECT_EQ(caught.code(), error.code());
    }
  }
}

TEST(Threads, TheFirstExceptionEndsAllAndIsRethrownWithItsRank) {
  expect_rethrown(UsageError("what"), "rank 1: what");
  expect_rethrown(DataError("what"), "rank 1: what");
  expect_rethrown(OutOfDeviceMemory("what"), "rank 1: what");
  expect_rethrown(CommunicationError("what"), "rank 1: what");
  expect_rethrown(NumericalError("what"), "rank 1: what");
  expect_rethrown(Error(ExitCode::failed, "what"), "rank 1: what");
  expect_rethrown(std::runtime_error("what"), "rank 1: what");
}

}  // namespace
}  // namespace ringworld
