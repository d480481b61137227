#include "collectives/execute.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace ringworld {
namespace {

// How many segments of a message are posted at a time. With two, the peer can work on one while
// this rank reduces the other; more hide jitter.
constexpr std::size_t window = 4;

// Local actions go over their chunks in pieces of this size, all actions on one piece after the
// other, so that what one action writes is still in the cache for the next.
constexpr Bytes piece{128 * 1024};

struct Part {
  Verb verb;
  Tensor tensor;
};

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

// The elements from `first` on, `count` of them, of a message in parts.
std::vector<Part> cut(const std::vector<Part>& parts, std::int64_t first, std::int64_t count) {
  std::vector<Part> segment;
  for (const Part& part : parts) {
    const std::int64_t begin = std::max<std::int64_t>(first, 0);
    const std::int64_t end = std::min(first + count, part.tensor.elements());
    if (begin < end) {
      segment.push_back({part.verb, part.tensor.slice(begin, end - begin)});
    }
    first -= part.tensor.elements();
  }
  return segment;
}

std::int64_t elements_of(const std::vector<Part>& parts) {
  std::int64_t elements = 0;
  for (const Part& part : parts) {
    elements += part.tensor.elements();
  }
  return elements;
}

}  // namespace

// --- Making ready --------------------------------------------------------------------------------

Executor::Executor(Schedule schedule)
    : schedule_(std::move(schedule)), borrowed_(schedule_.borrowed()) {
  const auto lane_of = [](std::vector<Lane>& lanes, int peer) -> Lane& {
    const auto found = std::ranges::find(lanes, peer, &Lane::peer);
    return found != lanes.end() ? *found : lanes.emplace_back(Lane{.peer = peer});
  };
  for (const Step& step : schedule_.steps()) {
    Stage& stage = stages_.emplace_back();
    stage.local = step.local;
    stage.local_writes.resize(static_cast<std::size_t>(schedule_.chunks()));
    stage.message_writes.resize(static_cast<std::size_t>(schedule_.chunks()));
    for (const LocalAction& action : step.local) {
      stage.local_writes[static_cast<std::size_t>(action.chunk)] = true;
    }
    for (const Action& action : step.actions) {
      const auto chunk = static_cast<std::size_t>(action.chunk);
      Lane& lane = lane_of(action.verb == Verb::send ? stage.sends : stage.receives, action.peer);
      lane.actions.push_back(action);
      if (action.verb != Verb::send) {
        lane.borrows = borrowed_[chunk];
        stage.message_writes[chunk] = true;
      }
    }
  }
}

// --- Running -------------------------------------------------------------------------------------

// One call.
class Executor::Run {
 public:
  Run(const Executor& executor, std::span<const Tensor> chunks, std::span<const Tensor> inputs,
      ReduceOp op, Backend& backend, const Route& route)
      : executor_(executor),
        chunks_(chunks.begin(), chunks.end()),
        inputs_(inputs.begin(), inputs.end()),
        op_(op),
        backend_(backend),
        transport_(route.transport),
        route_(route) {
    add_scratch();
  }

  Bytes all() {
    for (const Stage& stage : executor_.stages_) {
      finish_sends(stage.local_writes);
      act(stage.local);
      give_back();  // before this rank waits for what others give back
      finish_sends(stage.message_writes);
      for (const Lane& lane : stage.sends) {
        start(lane, /*sends=*/true);
      }
      for (const Lane& lane : stage.receives) {
        start(lane, /*sends=*/false);
      }
      finish_flows();
    }
    give_back();
    for (const Sending& sending : sendings_) {
      transport_.wait(sending.ticket);
    }
    for (std::size_t chunk = 0; chunk < inputs_.size(); ++chunk) {
      bring_in(static_cast<int>(chunk));
    }
    return bytes_sent_;
  }

 private:
  // A message, or the segment of one, that is under way.
  struct Posted {
    std::vector<Part> parts;  // of a receive that is read: where it goes
    Tensor packed;            // of a send that joins chunks: what travels
    Transport::Ticket ticket;
  };
  // A message that this step waits for, cut into segments.
  struct Flow {
    bool sends;
    int peer;  // of the transport
    const Lane* lane;
    std::vector<Part> parts;
    std::int64_t elements;
    std::int64_t longest;     // segment
    std::int64_t posted = 0;  // elements
    std::deque<Posted> under_way = {};
  };
  // A message that is on its way while later steps run.
  struct Sending {
    const Lane* lane;
    Tensor packed;
    Transport::Ticket ticket;
  };

  void add_scratch() {
    const Schedule& schedule = executor_.schedule_;
    std::int64_t elements = 0;
    int chunk = schedule.data_chunks();
    for (const int as_long_as : schedule.scratch()) {
      elements += executor_.borrowed_[chunk++] ? 0 : chunks_[as_long_as].elements();
    }
    Tensor scratch;
    if (elements > 0) {
      scratch = backend_.empty(chunks_.front().dtype(), Shape{elements}, Category::communication);
    }
    std::int64_t first = 0;
    chunk = schedule.data_chunks();
    for (const int as_long_as : schedule.scratch()) {
      const std::int64_t length = chunks_[as_long_as].elements();
      if (executor_.borrowed_[chunk++] || length == 0) {
        chunks_.push_back(Tensor(chunks_.front().dtype(), Shape{length}, nullptr));
      } else {
        chunks_.push_back(scratch.slice(first, length));
        first += length;
      }
    }
  }

  // --- Where a chunk's content is ----------------------------------------------------------------

  bool is_input(int chunk) const {
    return chunk < static_cast<int>(inputs_.size()) && inputs_[chunk].defined();
  }
  const Tensor& content(int chunk) const {
    return is_input(chunk) ? inputs_[chunk] : chunks_[chunk];
  }
  // The chunk is written whole.
  void forget_input(int chunk) {
    if (is_input(chunk)) {
      inputs_[chunk] = Tensor();
    }
  }
  // The chunk is changed: its content must be in its place.
  void bring_in(int chunk) {
    if (is_input(chunk)) {
      backend_.copy(chunks_[chunk], inputs_[chunk]);
      inputs_[chunk] = Tensor();
    }
  }

  // --- Local actions -----------------------------------------------------------------------------

  void act(const std::vector<LocalAction>& actions) {
    if (actions.empty()) {
      return;
    }
    const std::int64_t count = chunks_[actions.front().chunk].elements();
    const std::int64_t at_once = piece.value / size_of(chunks_.front().dtype()).value;
    const bool alike = std::ranges::all_of(actions, [&](const LocalAction& action) {
      return chunks_[action.chunk].elements() == count;
    });
    if (!alike) {
      for (const LocalAction& action : actions) {
        act(action, 0, -1);
      }
      return;
    }
    const std::vector<Tensor> inputs = inputs_;
    for (std::int64_t first = 0; first < count; first += at_once) {
      inputs_ = inputs;  // each piece begins as the whole did
      for (const LocalAction& action : actions) {
        act(action, first, std::min(at_once, count - first));
      }
    }
  }

  // On `length` elements from `first`; -1: all of them.
  void act(const LocalAction& action, std::int64_t first, std::int64_t length) {
    const auto cut_out = [&](const Tensor& whole) {
      return length < 0 || whole.elements() == length ? whole : whole.slice(first, length);
    };
    const Tensor chunk = cut_out(chunks_[action.chunk]);
    if (chunk.elements() == 0) {
      return;
    }
    const Tensor source = cut_out(content(action.source));
    if (action.verb == Verb::reduce) {
      if (is_input(action.chunk)) {
        backend_.copy(chunk, cut_out(inputs_[action.chunk]));
      }
      backend_.combine(chunk, source, op_);
    } else {
      backend_.copy(chunk, source);
    }
    forget_input(action.chunk);
  }

  void give_back() {
    for (const Transport::Ticket ticket : borrowed_) {
      transport_.done_reading(ticket);
    }
    borrowed_.clear();
  }

  // --- Messages ----------------------------------------------------------------------------------

  // Waits for earlier sends of what is going to be written.
  void finish_sends(const std::vector<bool>& written_chunks) {
    std::erase_if(sendings_, [&](const Sending& sending) {
      const bool written = std::ranges::any_of(sending.lane->actions, [&](const Action& action) {
        return written_chunks[action.chunk];
      });
      if (written) {
        transport_.wait(sending.ticket);
      }
      return written;
    });
  }

  void start(const Lane& lane, bool sends) {
    std::int64_t elements = 0;
    for (const Action& action : lane.actions) {
      elements += chunks_[action.chunk].elements();
    }
    if (elements == 0) {
      return;
    }
    const DType dtype = chunks_.front().dtype();
    const int peer = route_.ranks[static_cast<std::size_t>(lane.peer)];
    const std::int64_t longest =
        transport_.in_place(peer)
            ? elements
            : std::max<std::int64_t>(1, route_.segment.value / size_of(dtype).value);
    if (!sends && lane.borrows && elements > longest) {  // it comes in segments, which need a place
      chunks_[lane.actions.front().chunk] =
          backend_.empty(dtype, Shape{elements}, Category::communication);
    }
    std::vector<Part> parts;
    for (const Action& action : lane.actions) {
      if (action.verb == Verb::receive) {
        forget_input(action.chunk);
      } else if (action.verb == Verb::receive_reduce) {
        bring_in(action.chunk);
      }
      append(parts, action.verb, sends ? content(action.chunk) : chunks_[action.chunk]);
    }
    if (sends && elements <= longest) {
      Posted posted = send(peer, std::move(parts));
      sendings_.push_back({&lane, std::move(posted.packed), posted.ticket});
      return;
    }
    flows_.push_back({sends, peer, &lane, std::move(parts), elements, longest});
  }

  void finish_flows() {
    while (!flows_.empty()) {
      oldest_.clear();
      for (Flow& flow : flows_) {
        while (flow.posted < flow.elements && flow.under_way.size() < window) {
          post(flow);
        }
        oldest_.push_back(flow.under_way.front().ticket);
      }
      const std::size_t which = transport_.wait_any(oldest_);
      Flow& flow = flows_[which];
      if (!flow.sends) {
        arrive(*flow.lane, flow.under_way.front());
      }
      flow.under_way.pop_front();
      if (flow.under_way.empty() && flow.posted == flow.elements) {
        flows_.erase(flows_.begin() + static_cast<std::ptrdiff_t>(which));
      }
    }
  }

  void post(Flow& flow) {
    const std::int64_t count = std::min(flow.longest, flow.elements - flow.posted);
    std::vector<Part> parts =
        count == flow.elements ? std::move(flow.parts) : cut(flow.parts, flow.posted, count);
    flow.posted += count;
    flow.under_way.push_back(flow.sends ? send(flow.peer, std::move(parts))
                                        : receive(flow, std::move(parts), count));
  }

  Posted send(int peer, std::vector<Part> parts) {
    Tensor travels = parts.front().tensor;
    Tensor packed;
    if (parts.size() > 1) {
      packed = backend_.empty(travels.dtype(), Shape{elements_of(parts)}, Category::communication);
      std::int64_t first = 0;
      for (const Part& part : parts) {
        backend_.copy(packed.slice(first, part.tensor.elements()), part.tensor);
        first += part.tensor.elements();
      }
      travels = packed;
    }
    bytes_sent_ += travels.bytes();
    return {{}, packed, transport_.send(peer, route_.signature, travels)};
  }

  Posted receive(const Flow& flow, std::vector<Part> parts, std::int64_t count) {
    const bool has_place = parts.size() == 1 && parts.front().tensor.defined();
    if (has_place && parts.front().verb == Verb::receive) {
      return {{}, {}, transport_.receive(flow.peer, route_.signature, parts.front().tensor)};
    }
    const DType dtype = chunks_.front().dtype();
    return {std::move(parts), {}, transport_.read(flow.peer, route_.signature, dtype, count)};
  }

  // What was read goes where it belongs, or is kept for the next step's local actions.
  void arrive(const Lane& lane, const Posted& posted) {
    if (posted.parts.empty()) {
      return;
    }
    const Tensor message = transport_.reading(posted.ticket);
    if (Tensor& chunk = chunks_[lane.actions.front().chunk]; lane.borrows && !chunk.defined()) {
      chunk = message;
      borrowed_.push_back(posted.ticket);
      return;
    }
    std::int64_t first = 0;
    for (const Part& part : posted.parts) {
      const Tensor arrived = message.slice(first, part.tensor.elements());
      if (part.verb == Verb::receive_reduce) {
        backend_.combine(part.tensor, arrived, op_);
      } else {
        backend_.copy(part.tensor, arrived);
      }
      first += part.tensor.elements();
    }
    transport_.done_reading(posted.ticket);
  }

  const Executor& executor_;
  std::vector<Tensor> chunks_;  // data, then scratch
  std::vector<Tensor> inputs_;  // of data chunks that hold their first content; else undefined
  const ReduceOp op_;
  Backend& backend_;
  Transport& transport_;
  const Route& route_;
  std::vector<Flow> flows_;
  std::vector<Sending> sendings_;
  std::vector<Transport::Ticket> borrowed_;
  std::vector<Transport::Ticket> oldest_;  // of each flow
  Bytes bytes_sent_;
};

Bytes Executor::run(std::span<const Tensor> chunks, std::span<const Tensor> inputs, ReduceOp op,
                    Backend& backend, const Route& route) {
  return Run(*this, chunks, inputs, op, backend, route).all();
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
