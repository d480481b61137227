// An emulated link between a device and a slower tier: it makes a transfer take as long as it would
// over a link of a given bandwidth, and counts what went over it.
//
// Each direction is a lane of its own, on which transfers queue one after the other. A transfer
// ends at an absolute moment, so its own copying is part of its time, it passes while others
// compute, and the errors of sleeping do not add up.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "runtime/bytes.h"
#include "runtime/stream.h"

namespace ringworld {

enum class LinkDirection : std::uint8_t {
  down,  // away from the device: device to host, host to file
  up,    // towards it
};

struct LinkTraffic {
  Bytes down;
  Bytes up;
  double seconds_waited = 0;  // slept, because a transfer was not over
};
inline LinkTraffic operator-(const LinkTraffic& a, const LinkTraffic& b) {
  return {a.down - b.down, a.up - b.up, a.seconds_waited - b.seconds_waited};
}

// The time that a link lives in; tests have one of their own.
class LinkClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~LinkClock() = default;
  virtual TimePoint now() = 0;
  virtual void sleep_until(TimePoint when) = 0;
};
std::shared_ptr<LinkClock> make_steady_clock();

class Link {
 public:
  // Bytes per second in each direction; 0: no limit, transfers are only counted.
  explicit Link(double bytes_per_second, std::shared_ptr<LinkClock> clock = make_steady_clock());

  // A transfer begins, behind those that began before in its direction. The work is over when the
  // link has carried it; the caller copies the bytes meanwhile. The work may outlive the link.
  [[nodiscard]] Work begin(LinkDirection direction, Bytes bytes);

  LinkTraffic traffic() const;
  double bytes_per_second() const;

 private:
  struct State;
  class Transfer;
  std::shared_ptr<State> state_;
};

}  // namespace ringworld
