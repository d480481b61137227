#include "runtime/link.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

using namespace std::chrono_literals;

// Time passes only when somebody sleeps, and then a little more than asked for.
class ManualClock final : public LinkClock {
 public:
  TimePoint now() override { return now_; }
  void sleep_until(TimePoint when) override {
    now_ = std::max(now_, when) + oversleeps;
    ++sleeps;
  }
  void pass(std::chrono::nanoseconds time) { now_ += time; }
  std::chrono::nanoseconds since_start() const { return now_ - start; }

  std::chrono::nanoseconds oversleeps{0};
  int sleeps = 0;

 private:
  static constexpr TimePoint start{1000h};
  TimePoint now_ = start;
};

class LinkTest : public ::testing::Test {
 protected:
  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  Link link_{1e9, clock_};  // a byte takes a nanosecond
};

TEST_F(LinkTest, ATransferTakesItsBytesOverTheBandwidth) {
  Work work = link_.begin(LinkDirection::down, Bytes(5000));
  EXPECT_FALSE(work.done());
  work.wait();
  EXPECT_EQ(clock_->since_start(), 5us);
  EXPECT_TRUE(work.done());
  work.wait();  // over is over
  EXPECT_EQ(clock_->since_start(), 5us);
}

TEST_F(LinkTest, OnlyWhatTheCopyDidNotTakeIsSlept) {
  Work work = link_.begin(LinkDirection::up, Bytes(5000));
  clock_->pass(3us);
  work.wait();
  EXPECT_EQ(clock_->since_start(), 5us);
  EXPECT_DOUBLE_EQ(link_.traffic().seconds_waited, 2e-6);
  // A copy that takes longer than the link is not held up, and nothing is made up for it.
  Work slow = link_.begin(LinkDirection::up, Bytes(1000));
  clock_->pass(4us);
  slow.wait();
  EXPECT_EQ(clock_->since_start(), 9us);
  EXPECT_EQ(clock_->sleeps, 1);
  link_.begin(LinkDirection::up, Bytes(1000)).wait();
  EXPECT_EQ(clock_->since_start(), 10us);
}

TEST_F(LinkTest, OneDirectionQueuesAndTheOtherDoesNot) {
  Work first = link_.begin(LinkDirection::down, Bytes(1000));
  Work second = link_.begin(LinkDirection::down, Bytes(2000));
  Work other = link_.begin(LinkDirection::up, Bytes(1500));
  other.wait();
  EXPECT_EQ(clock_->since_start(), 1500ns);
  EXPECT_TRUE(first.done());
  second.wait();
  EXPECT_EQ(clock_->since_start(), 3us);
  first.wait();
  EXPECT_EQ(clock_->since_start(), 3us);
}

// Each wake-up comes 400 ns late; a thousand transfers in a row are late by 400 ns all the same.
TEST_F(LinkTest, ErrorsOfSleepingDoNotAddUp) {
  clock_->oversleeps = 400ns;
  for (int i = 0; i < 1000; ++i) {
    link_.begin(LinkDirection::down, Bytes(1000)).wait();
  }
  EXPECT_EQ(clock_->since_start(), 1ms + 400ns);
}

// Time in which nothing was sent is not made up for.
TEST_F(LinkTest, AnIdleLinkSavesNothing) {
  clock_->oversleeps = 100ns;
  link_.begin(LinkDirection::down, Bytes(1000)).wait();
  clock_->oversleeps = 0ns;
  clock_->pass(1ms);
  const auto idle = clock_->since_start();
  link_.begin(LinkDirection::down, Bytes(1000)).wait();
  EXPECT_EQ(clock_->since_start(), idle + 900ns);  // the 100 ns that were overslept
  clock_->pass(1ms);
  const auto again = clock_->since_start();
  link_.begin(LinkDirection::down, Bytes(1000)).wait();
  EXPECT_EQ(clock_->since_start(), again + 1us);
}

TEST_F(LinkTest, WhatWasOversleptIsMadeUpForOnce) {
  clock_->oversleeps = 100ns;
  link_.begin(LinkDirection::down, Bytes(1000)).wait();
  clock_->oversleeps = 0ns;
  Work slow = link_.begin(LinkDirection::down, Bytes(1000));
  clock_->pass(4us);
  slow.wait();
  const auto then = clock_->since_start();
  link_.begin(LinkDirection::down, Bytes(1000)).wait();
  EXPECT_EQ(clock_->since_start(), then + 1us);
}

TEST_F(LinkTest, CountsBytesByDirectionAndTheTimeWaited) {
  link_.begin(LinkDirection::down, Bytes(3000)).wait();
  const LinkTraffic before = link_.traffic();
  link_.begin(LinkDirection::up, Bytes(500)).wait();
  link_.begin(LinkDirection::down, Bytes(0)).wait();
  EXPECT_EQ(before.down, Bytes(3000));
  EXPECT_EQ(before.up, Bytes(0));
  const LinkTraffic since = link_.traffic() - before;
  EXPECT_EQ(since.down, Bytes(0));
  EXPECT_EQ(since.up, Bytes(500));
  EXPECT_NEAR(since.seconds_waited, 5e-7, 1e-15);
}

TEST(Link, WithoutALimitNothingWaitsAndAllIsCounted) {
  const auto clock = std::make_shared<ManualClock>();
  Link link(0, clock);
  link.begin(LinkDirection::up, Bytes(std::int64_t{1} << 50)).wait();
  EXPECT_EQ(clock->sleeps, 0);
  EXPECT_EQ(link.traffic().up, Bytes(std::int64_t{1} << 50));
}

TEST(Link, AWorkMayOutliveItsLink) {
  const auto clock = std::make_shared<ManualClock>();
  Work work;
  {
    Link link(1e9, clock);
    work = link.begin(LinkDirection::up, Bytes(7));
  }
  work.wait();
  EXPECT_EQ(clock->since_start(), 7ns);
}

TEST(Link, RefusesANegativeBandwidth) {
  EXPECT_THROW(Link(-1), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
