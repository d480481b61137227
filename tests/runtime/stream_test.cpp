#include "runtime/stream.h"

#include <latch>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

TEST(Stream, RunsInOrderWhileTheCallerGoesOn) {
  std::vector<int> order;
  std::latch caller_went_on(1);
  Stream stream;
  Work first = stream.submit([&] {
    caller_went_on.wait();  // would never return if submit blocked
    order.push_back(1);
  });
  Work second = stream.submit([&] { order.push_back(2); });
  EXPECT_FALSE(first.done());
  caller_went_on.count_down();
  second.wait();
  first.wait();
  first.wait();
  EXPECT_TRUE(first.done());
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(Stream, AFailureReachesItsWaiterAndAllThatFollows) {
  Stream stream;
  bool ran = false;
  Work fails = stream.submit([] { throw std::runtime_error("broken"); });
  Work after = stream.submit([&] { ran = true; });
  EXPECT_THROW(fails.wait(), std::runtime_error);
  EXPECT_THROW(after.wait(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(Stream, FinishesWhatWasSubmitted) {
  int runs = 0;
  {
    Stream stream;
    for (int i = 0; i < 100; ++i) {
      (void)stream.submit([&] { ++runs; });
    }
  }
  EXPECT_EQ(runs, 100);
}

TEST(Work, OfNothingIsDone) {
  Work work;
  EXPECT_TRUE(work.done());
  work.wait();
}

}  // namespace
}  // namespace ringworld
