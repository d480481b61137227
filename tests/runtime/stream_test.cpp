#include "runtime/stream.h"

#include <algorithm>
#include <latch>
#include <stdexcept>
#include <thread>
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

TEST(Stream, WhoWaitsRunsWhatWasLeftForHim) {
  Stream stream;
  std::thread::id ran_on;
  Work work =
      stream.submit([&] { ran_on = std::this_thread::get_id(); }, Stream::Start::when_waited_for);
  work.wait();
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(Stream, WhatWasLeftBeginsWithTheNextOne) {
  Stream stream;
  std::latch began(1);
  Work left = stream.submit([&] { began.count_down(); }, Stream::Start::when_waited_for);
  Work next = stream.submit([] {}, Stream::Start::when_waited_for);
  began.wait();  // would never return if both were left
  next.wait();
  left.wait();
}

TEST(Stream, WhoOnlyAsksIsNotKeptWaiting) {
  Stream stream;
  Work left = stream.submit([] {}, Stream::Start::when_waited_for);
  while (!left.done()) {  // would never end if asking started nothing
    std::this_thread::yield();
  }
}

TEST(Stream, RunsOneAtATimeWhoeverRunsIt) {
  Stream stream;
  int running = 0;  // a race for ThreadSanitizer if two ran at once
  int most = 0;
  std::vector<Work> works;
  for (int i = 0; i < 200; ++i) {
    works.push_back(stream.submit(
        [&] {
          most = std::max(most, ++running);
          --running;
        },
        i % 3 == 0 ? Stream::Start::now : Stream::Start::when_waited_for));
    if (i % 5 == 0) {
      works.back().wait();
    }
  }
  for (Work& work : works) {
    work.wait();
  }
  EXPECT_EQ(most, 1);
}

TEST(Work, OfNothingIsDone) {
  Work work;
  EXPECT_TRUE(work.done());
  work.wait();
}

}  // namespace
}  // namespace ringworld
