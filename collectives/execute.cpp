#include "collectives/execute.h"

#include <algorithm>
#include <deque>
#include <vector>

namespace ringworld {
namespace {

// How many segments of a lane are posted at a time. With two, the peer can work on one while this
// rank reduces the other; more hide jitter.
constexpr std::size_t window = 4;

// What one step sends to one peer, or receives from one: segments in order. Lanes make progress
// independently of one another, as the actions of a step do in the proof.
struct Lane {
  bool sends;
  int peer;
  struct Segment {
    Verb verb;
    Tensor tensor;
  };
  std::deque<Segment> waiting = {};
  std::deque<Transport::Ticket> posted = {};
};

Lane& lane_of(const Action& action, std::vector<Lane>& lanes) {
  const bool sends = action.verb == Verb::send;
  const auto found = std::ranges::find_if(
      lanes, [&](const Lane& lane) { return lane.sends == sends && lane.peer == action.peer; });
  return found != lanes.end() ? *found : lanes.emplace_back(Lane{sends, action.peer});
}

std::vector<Lane> lanes_of(const Step& step, const Schedule& schedule, const Tensor& buffer,
                           std::int64_t segment_elements) {
  std::vector<Lane> lanes;
  for (const Action& action : step.actions) {
    const Range chunk = chunk_range(buffer.elements(), schedule.chunks(), action.chunk);
    for (std::int64_t done = 0; done < chunk.count; done += segment_elements) {
      const std::int64_t count = std::min(segment_elements, chunk.count - done);
      lane_of(action, lanes)
          .waiting.push_back({action.verb, buffer.slice(chunk.first + done, count)});
    }
  }
  return lanes;
}

}  // namespace

Bytes execute(const Schedule& schedule, const Tensor& buffer, ReduceOp op, Transport& transport,
              Tag tag, Bytes segment) {
  const std::int64_t segment_elements =
      std::max<std::int64_t>(1, segment.value / size_of(buffer.dtype()).value);
  Bytes bytes_sent;
  const auto post = [&](Lane& lane) {
    const auto [verb, tensor] = lane.waiting.front();
    lane.waiting.pop_front();
    switch (verb) {
      case Verb::send:
        bytes_sent += tensor.bytes();
        lane.posted.push_back(transport.send(lane.peer, tag, tensor));
        return;
      case Verb::receive:
        lane.posted.push_back(transport.receive(lane.peer, tag, tensor));
        return;
      case Verb::receive_reduce:
        lane.posted.push_back(transport.receive_reduce(lane.peer, tag, tensor, op));
        return;
    }
  };

  for (const Step& step : schedule.steps()) {
    std::vector<Lane> lanes = lanes_of(step, schedule, buffer, segment_elements);
    while (!lanes.empty()) {
      std::vector<Transport::Ticket> oldest;
      for (Lane& lane : lanes) {
        while (!lane.waiting.empty() && lane.posted.size() < window) {
          post(lane);
        }
        oldest.push_back(lane.posted.front());
      }
      Lane& progressed = lanes[transport.wait_any(oldest)];
      progressed.posted.pop_front();
      std::erase_if(lanes,
                    [](const Lane& lane) { return lane.waiting.empty() && lane.posted.empty(); });
    }
  }
  return bytes_sent;
}

}  // namespace ringworld
