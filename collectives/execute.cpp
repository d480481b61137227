#include "collectives/execute.h"

#include <algorithm>
#include <deque>

namespace ringworld {
namespace {

// How many segments of a lane are posted at a time. With two, the peer can work on one while this
// rank reduces the other; more hide jitter.
constexpr std::size_t window = 4;

struct Part {
  Verb verb;
  Tensor tensor;
};

// A piece of a message, of one or several chunks.
struct Segment {
  std::vector<Part> parts = {};
  std::int64_t elements = 0;
  Tensor packed = {};  // where the parts travel, when there are several
  Transport::Ticket ticket = 0;
};

// The message of one step to one peer, or from one. Lanes make progress independently of one
// another, as the messages of a step do in the proof.
struct Lane {
  bool sends;
  int peer;
  std::vector<Part> parts = {};
  std::deque<Segment> waiting = {};
  std::deque<Segment> posted = {};
};

Lane& lane_of(const Action& action, std::vector<Lane>& lanes) {
  const bool sends = action.verb == Verb::send;
  const auto found = std::ranges::find_if(
      lanes, [&](const Lane& lane) { return lane.sends == sends && lane.peer == action.peer; });
  return found != lanes.end() ? *found : lanes.emplace_back(Lane{sends, action.peer});
}

// Adds what comes next in the message; to the last part, where it lies right behind it.
void append(std::vector<Part>& parts, Verb verb, const Tensor& next) {
  if (next.elements() == 0) {
    return;
  }
  if (!parts.empty()) {
    Part& last = parts.back();
    if (last.verb == verb && last.tensor.storage() == next.storage() &&
        last.tensor.first_element() + last.tensor.elements() == next.first_element()) {
      last.tensor = Tensor(next.dtype(), Shape{last.tensor.elements() + next.elements()},
                           next.storage(), last.tensor.first_element());
      return;
    }
  }
  parts.push_back({verb, next});
}

std::deque<Segment> segments_of(const std::vector<Part>& parts, std::int64_t longest) {
  std::deque<Segment> segments;
  for (const Part& part : parts) {
    for (std::int64_t done = 0; done < part.tensor.elements();) {
      if (segments.empty() || segments.back().elements == longest) {
        segments.emplace_back();
      }
      Segment& segment = segments.back();
      const std::int64_t count =
          std::min(longest - segment.elements, part.tensor.elements() - done);
      segment.parts.push_back({part.verb, part.tensor.slice(done, count)});
      segment.elements += count;
      done += count;
    }
  }
  return segments;
}

class Execution {
 public:
  Execution(const std::vector<Tensor>& chunks, ReduceOp op, Backend& backend, const Route& route)
      : chunks_(chunks), op_(op), backend_(backend), route_(route) {}

  void add_scratch(const Schedule& schedule) {
    if (schedule.scratch().empty()) {
      return;
    }
    std::int64_t elements = 0;
    for (const int as_long_as : schedule.scratch()) {
      elements += chunks_[as_long_as].elements();
    }
    const Tensor scratch =
        backend_.empty(chunks_.front().dtype(), Shape{elements}, Category::communication);
    std::int64_t first = 0;
    for (const int as_long_as : schedule.scratch()) {
      chunks_.push_back(scratch.slice(first, chunks_[as_long_as].elements()));
      first += chunks_[as_long_as].elements();
    }
  }

  void run(const Step& step) {
    for (const LocalAction& action : step.local) {
      if (action.verb == Verb::copy) {
        backend_.copy(chunks_[action.chunk], chunks_[action.source]);
      } else {
        backend_.combine(chunks_[action.chunk], chunks_[action.source], op_);
      }
    }
    std::vector<Lane> lanes = lanes_of(step);
    while (!lanes.empty()) {
      std::vector<Transport::Ticket> oldest;
      for (Lane& lane : lanes) {
        while (!lane.waiting.empty() && lane.posted.size() < window) {
          post(lane);
        }
        oldest.push_back(lane.posted.front().ticket);
      }
      Lane& progressed = lanes[route_.transport.wait_any(oldest)];
      if (!progressed.sends) {
        unpack(progressed.posted.front());
      }
      progressed.posted.pop_front();
      std::erase_if(lanes,
                    [](const Lane& lane) { return lane.waiting.empty() && lane.posted.empty(); });
    }
  }

  Bytes bytes_sent() const { return bytes_sent_; }

 private:
  std::vector<Lane> lanes_of(const Step& step) const {
    std::vector<Lane> lanes;
    for (const Action& action : step.actions) {
      append(lane_of(action, lanes).parts, action.verb, chunks_[action.chunk]);
    }
    const std::int64_t longest =
        std::max<std::int64_t>(1, route_.segment.value / size_of(chunks_.front().dtype()).value);
    for (Lane& lane : lanes) {
      lane.waiting = segments_of(lane.parts, longest);
    }
    std::erase_if(lanes, [](const Lane& lane) { return lane.waiting.empty(); });
    return lanes;
  }

  void post(Lane& lane) {
    Segment segment = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    const int peer = route_.ranks[static_cast<std::size_t>(lane.peer)];
    const Part& first = segment.parts.front();
    const bool several = segment.parts.size() > 1;
    if (several) {
      segment.packed =
          backend_.empty(first.tensor.dtype(), Shape{segment.elements}, Category::communication);
    }
    const Tensor& travels = several ? segment.packed : first.tensor;
    if (lane.sends) {
      if (several) {
        pack(segment);
      }
      bytes_sent_ += travels.bytes();
      segment.ticket = route_.transport.send(peer, route_.tag, travels);
    } else if (!several && first.verb == Verb::receive_reduce) {
      segment.ticket = route_.transport.receive_reduce(peer, route_.tag, travels, op_);
    } else {
      segment.ticket = route_.transport.receive(peer, route_.tag, travels);
    }
    lane.posted.push_back(std::move(segment));
  }

  void pack(const Segment& segment) {
    std::int64_t first = 0;
    for (const Part& part : segment.parts) {
      backend_.copy(segment.packed.slice(first, part.tensor.elements()), part.tensor);
      first += part.tensor.elements();
    }
  }

  void unpack(const Segment& segment) {
    if (!segment.packed.defined()) {
      return;
    }
    std::int64_t first = 0;
    for (const Part& part : segment.parts) {
      const Tensor arrived = segment.packed.slice(first, part.tensor.elements());
      if (part.verb == Verb::receive_reduce) {
        backend_.combine(part.tensor, arrived, op_);
      } else {
        backend_.copy(part.tensor, arrived);
      }
      first += part.tensor.elements();
    }
  }

  std::vector<Tensor> chunks_;  // data, then scratch
  ReduceOp op_;
  Backend& backend_;
  const Route& route_;
  Bytes bytes_sent_;
};

}  // namespace

Bytes execute(const Schedule& schedule, const std::vector<Tensor>& chunks, ReduceOp op,
              Backend& backend, const Route& route) {
  Execution execution(chunks, op, backend, route);
  execution.add_scratch(schedule);
  for (const Step& step : schedule.steps()) {
    execution.run(step);
  }
  return execution.bytes_sent();
}

std::vector<Tensor> even_chunks(const Tensor& buffer, int count) {
  std::vector<Tensor> chunks;
  for (int chunk = 0; chunk < count; ++chunk) {
    const Range range = chunk_range(buffer.elements(), count, chunk);
    chunks.push_back(buffer.slice(range.first, range.count));
  }
  return chunks;
}

}  // namespace ringworld
