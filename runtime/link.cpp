#include "runtime/link.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

namespace ringworld {
namespace {

using Duration = LinkClock::TimePoint::duration;
using TimePoint = LinkClock::TimePoint;

class SteadyClock final : public LinkClock {
 public:
  TimePoint now() override { return std::chrono::steady_clock::now(); }
  void sleep_until(TimePoint when) override { std::this_thread::sleep_until(when); }
};

}  // namespace

std::shared_ptr<LinkClock> make_steady_clock() {
  return std::make_shared<SteadyClock>();
}

struct Link::State {
  struct Lane {
    TimePoint free{};  // when the last transfer is over
    // By how much its waiter overslept. The next transfer begins that much in the past: without
    // that, a thousand blocks in a row would take a thousand wake-ups longer than the link.
    Duration overslept{};
  };

  const double bytes_per_second;
  const std::shared_ptr<LinkClock> clock;
  std::mutex mutex;
  std::array<Lane, 2> lanes{};
  LinkTraffic traffic{};

  Lane& lane(LinkDirection direction) { return lanes[static_cast<std::size_t>(direction)]; }
};

class Link::Transfer final : public Work::Task {
 public:
  Transfer(std::shared_ptr<State> state, LinkDirection direction, TimePoint end)
      : state_(std::move(state)), direction_(direction), end_(end) {}

  void wait() override {
    const TimePoint before = state_->clock->now();
    if (before >= end_) {
      return;
    }
    state_->clock->sleep_until(end_);
    const TimePoint after = state_->clock->now();
    const std::lock_guard lock(state_->mutex);
    state_->traffic.seconds_waited += std::chrono::duration<double>(after - before).count();
    State::Lane& lane = state_->lane(direction_);
    if (lane.free == end_) {
      lane.overslept = after - end_;
    }
  }

  bool done() override { return state_->clock->now() >= end_; }

 private:
  const std::shared_ptr<State> state_;
  const LinkDirection direction_;
  const TimePoint end_;
};

Link::Link(double bytes_per_second, std::shared_ptr<LinkClock> clock)
    : state_(
          new State{.bytes_per_second = bytes_per_second, .clock = std::move(clock), .mutex = {}}) {
  if (!(bytes_per_second >= 0) || std::isinf(bytes_per_second)) {
    throw std::invalid_argument(fmt::format("a link of {} bytes per second", bytes_per_second));
  }
}

Work Link::begin(LinkDirection direction, Bytes bytes) {
  const std::lock_guard lock(state_->mutex);
  (direction == LinkDirection::down ? state_->traffic.down : state_->traffic.up) += bytes;
  if (state_->bytes_per_second == 0) {
    return {};
  }
  State::Lane& lane = state_->lane(direction);
  const TimePoint start = std::max(lane.free, state_->clock->now() - lane.overslept);
  const std::chrono::duration<double> takes(static_cast<double>(bytes.value) /
                                            state_->bytes_per_second);
  lane.free = start + std::chrono::ceil<Duration>(takes);
  lane.overslept = {};
  return Work(std::make_shared<Transfer>(state_, direction, lane.free));
}

LinkTraffic Link::traffic() const {
  const std::lock_guard lock(state_->mutex);
  return state_->traffic;
}

double Link::bytes_per_second() const {
  return state_->bytes_per_second;
}

}  // namespace ringworld
