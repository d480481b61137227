// What a device holds over the time of one optimizer step, by category: every allocation and every
// return, and marks that say what was at work.
//
// A step that allocates more often than there is room for is thinned: of every 16 neighbours those
// stay where the total, or a category, is highest among them. So every event is a moment that was,
// and the peaks are all there, exactly.
//
// Thread safety: events come from any thread, and mark may be called from any; what is recorded is
// read after end().
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/device.h"

namespace ringworld {

struct MemoryEvent {
  double seconds = 0;  // since the start of the step
  std::array<Bytes, category_count> held{};
  Bytes total;
};

// What began then: "forward h.3".
struct MemoryMark {
  double seconds = 0;
  std::string label;
};

class MemoryTimeline final : public DeviceObserver {
 public:
  static constexpr std::size_t default_room = 200'000;  // events

  // The device must outlive it. Room for at least 32 events, else std::invalid_argument.
  explicit MemoryTimeline(Device& device, std::size_t room = default_room);
  ~MemoryTimeline() override { end(); }
  MemoryTimeline(const MemoryTimeline&) = delete;
  MemoryTimeline& operator=(const MemoryTimeline&) = delete;

  // The step starts: forgets what there was, and records from now on, beginning with what the
  // device holds.
  void begin();
  // From now on this is at work.
  void mark(std::string label);
  // The step is over; the last event tells what the device holds then.
  void end();

  Bytes budget() const { return device_.budget(); }  // 0: no limit
  // In the order of time.
  const std::vector<MemoryEvent>& events() const { return events_; }
  const std::vector<MemoryMark>& marks() const { return marks_; }
  // Of the total: the first event that has it. Without events one of zeros.
  MemoryEvent peak() const;
  // How many events there were, the thinned ones included.
  std::size_t recorded() const { return recorded_; }

  // Schema "ringworld.memory_timeline": an object with `conditions` as given, budget_bytes (null:
  // no limit), peak_bytes by category, marks and events, one to a line.
  std::string json_text(const nlohmann::ordered_json& conditions) const;

 private:
  void changed(const Ledger& ledger) noexcept override;
  double now() const;
  void thin();  // with mutex_ held

  Device& device_;
  const std::size_t room_;
  std::mutex mutex_;  // taken after the device's
  std::chrono::steady_clock::time_point start_;
  bool recording_ = false;
  std::size_t recorded_ = 0;
  std::vector<MemoryEvent> events_;
  std::vector<MemoryMark> marks_;
};

}  // namespace ringworld
