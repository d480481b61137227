#include "training/memory_timeline.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

// Of so many neighbours, at most one for each category and one for the total stays: half of them.
constexpr std::size_t neighbours = 2 * (category_count + 1);
constexpr std::size_t least_room = 2 * neighbours;

Json json_of(const std::array<Bytes, category_count>& held, Bytes total) {
  Json json;
  for (std::size_t c = 0; c < category_count; ++c) {
    json[std::string(name_of(static_cast<Category>(c)))] = held[c].value;
  }
  json["total"] = total.value;
  return json;
}

// The elements of an array, each on a line of its own.
template <typename Items, typename ToJson>
std::string lines(const Items& items, ToJson to_json) {
  std::string text;
  for (const auto& item : items) {
    const std::string line = to_json(item).dump(-1, ' ', false, Json::error_handler_t::replace);
    text += fmt::format("{}\n{}", text.empty() ? "" : ",", line);
  }
  return text;
}

}  // namespace

MemoryTimeline::MemoryTimeline(Device& device, std::size_t room) : device_(device), room_(room) {
  if (room < least_room) {
    throw std::invalid_argument(
        fmt::format("MemoryTimeline: room for {} events, it takes {}", room, least_room));
  }
  // So that recording allocates nothing; the pages are taken as they are written.
  events_.reserve(room);
}

void MemoryTimeline::begin() {
  {
    const std::lock_guard lock(mutex_);
    events_.clear();
    marks_.clear();
    recorded_ = 0;
    start_ = std::chrono::steady_clock::now();
    recording_ = true;
  }
  device_.observe(this);
}

void MemoryTimeline::mark(std::string label) {
  const std::lock_guard lock(mutex_);
  if (recording_) {
    marks_.push_back({now(), std::move(label)});
  }
}

void MemoryTimeline::end() {
  {
    const std::lock_guard lock(mutex_);
    if (!recording_) {
      return;
    }
  }
  device_.observe(this);  // which tells how things stand
  device_.observe(nullptr);
  const std::lock_guard lock(mutex_);
  recording_ = false;
}

double MemoryTimeline::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void MemoryTimeline::changed(const Ledger& ledger) noexcept {
  const std::lock_guard lock(mutex_);
  if (!recording_) {
    return;
  }
  if (events_.size() == room_) {
    thin();
  }
  ++recorded_;
  events_.push_back({now(), ledger.held, ledger.total_held});
}

void MemoryTimeline::thin() {
  // The first event stays: it is what the step began with.
  std::size_t kept = 1;
  for (std::size_t first = 1; first < events_.size(); first += neighbours) {
    const std::size_t end = std::min(first + neighbours, events_.size());
    std::array<bool, neighbours> stays{};
    const auto keep_highest = [&](auto bytes_of) {
      const auto highest = std::max_element(
          events_.begin() + static_cast<std::ptrdiff_t>(first),
          events_.begin() + static_cast<std::ptrdiff_t>(end),
          [&](const MemoryEvent& a, const MemoryEvent& b) { return bytes_of(a) < bytes_of(b); });
      stays[static_cast<std::size_t>(highest - events_.begin()) - first] = true;
    };
    keep_highest([](const MemoryEvent& event) { return event.total; });
    for (std::size_t c = 0; c < category_count; ++c) {
      keep_highest([c](const MemoryEvent& event) { return event.held[c]; });
    }
    for (std::size_t i = first; i < end; ++i) {
      if (stays[i - first]) {
        events_[kept++] = events_[i];
      }
    }
  }
  events_.resize(kept);
}

MemoryEvent MemoryTimeline::peak() const {
  const auto highest = std::ranges::max_element(events_, {}, &MemoryEvent::total);
  return highest == events_.end() ? MemoryEvent{} : *highest;
}

std::string MemoryTimeline::json_text(const nlohmann::ordered_json& conditions) const {
  std::array<Bytes, category_count> peaks{};
  for (const MemoryEvent& event : events_) {
    for (std::size_t c = 0; c < category_count; ++c) {
      peaks[c] = std::max(peaks[c], event.held[c]);
    }
  }
  Json head = {{"schema", "ringworld.memory_timeline"},
               {"version", 1},
               {"conditions", conditions},
               {"budget_bytes", budget().value > 0 ? Json(budget().value) : Json()},
               {"peak_bytes", json_of(peaks, peak().total)},
               {"recorded_events", recorded_}};
  std::string text = head.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.pop_back();  // the closing brace comes later
  text += fmt::format(",\n\"marks\": [{}],\n", lines(marks_, [](const MemoryMark& mark) {
                        return Json{{"seconds", mark.seconds}, {"label", mark.label}};
                      }));
  text += fmt::format("\"events\": [{}]}}\n", lines(events_, [](const MemoryEvent& event) {
                        Json json = {{"seconds", event.seconds}};
                        json.update(json_of(event.held, event.total));
                        return json;
                      }));
  return text;
}

}  // namespace ringworld
