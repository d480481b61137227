#include "collectives/execute.h"

#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>

#include "collectives/message_parts.h"

namespace ringworld {
namespace {

// How many segments of a message are posted at a time. With two, the peer can work on one while
// this rank reduces the other; more hide jitter.
constexpr std::size_t window = 4;

// Sums of several terms go over their chunks in pieces of this size, so that what one addition
// writes is still in the cache for the next.
constexpr Bytes piece{128 * 1024};

}  // namespace

// --- Making ready --------------------------------------------------------------------------------

Executor::Executor(Schedule schedule)
    : schedule_(std::move(schedule)), borrowed_(schedule_.borrowed()) {
  for (const Step& step : schedule_.steps()) {
    Stage& stage = stages_.emplace_back();
    if (auto sums = local_sums(schedule_, stages_.size() - 1)) {
      stage.sums = *std::move(sums);
    } else {
      stage.local = step.local;
    }
    for (const LocalAction& action : step.local) {
      stage.local_writes.push_back(action.chunk);
    }
    std::unordered_map<int, std::size_t> sends;  // lanes, by peer
    std::unordered_map<int, std::size_t> receives;
    const auto lane_of = [](std::vector<Lane>& lanes, auto& by_peer, int peer) -> Lane& {
      const auto [found, is_new] = by_peer.try_emplace(peer, lanes.size());
      return is_new ? lanes.emplace_back(Lane{.peer = peer}) : lanes[found->second];
    };
    for (const Action& action : step.actions) {
      const bool is_send = action.verb == Verb::send;
      Lane& lane = is_send ? lane_of(stage.sends, sends, action.peer)
                           : lane_of(stage.receives, receives, action.peer);
      lane.actions.push_back(action);
      if (!is_send) {
        lane.borrows = borrowed_[static_cast<std::size_t>(action.chunk)];
        stage.message_writes.push_back(action.chunk);
      }
    }
    for (std::vector<int>* chunks : {&stage.local_writes, &stage.message_writes}) {
      std::ranges::sort(*chunks);
      chunks->erase(std::unique(chunks->begin(), chunks->end()), chunks->end());
    }
  }
  mark_rooms();
}

void Executor::mark_rooms() {
  rooms_.assign(schedule_.scratch().size(), Room::none);
  const auto mark = [&](int chunk, Room room) {
    if (chunk >= schedule_.data_chunks() && !borrowed_[static_cast<std::size_t>(chunk)]) {
      Room& marked = rooms_[static_cast<std::size_t>(chunk - schedule_.data_chunks())];
      marked = std::max(marked, room);
    }
  };
  for (const Stage& stage : stages_) {
    for (const LocalAction& action : stage.local) {
      mark(action.source, Room::whole);
      mark(action.chunk, Room::whole);
    }
    for (const LocalSum& sum : stage.sums) {
      mark(sum.chunk, Room::whole);
      for (const int term : sum.terms) {
        mark(term, Room::whole);
      }
      if (sum.terms.size() > 2) {
        mark(sum.workplace, Room::piece);
      }
    }
    for (const std::vector<Lane>* lanes : {&stage.sends, &stage.receives}) {
      for (const Lane& lane : *lanes) {
        for (const Action& action : lane.actions) {
          mark(action.chunk, Room::whole);
        }
      }
    }
  }
}

// --- Running -------------------------------------------------------------------------------------

// One call.
class Executor::Run {
 public:
  Run(const Executor& executor, std::span<const Tensor> chunks, std::span<const Tensor> inputs,
      ReduceOp op, Backend& backend, Scratch& scratch, const Route& route)
      : executor_(executor),
        chunks_(chunks.begin(), chunks.end()),
        inputs_(inputs.begin(), inputs.end()),
        op_(op),
        backend_(backend),
        scratch_(scratch),
        transport_(route.transport),
        route_(route),
        sends_of_(static_cast<std::size_t>(executor.schedule_.chunks())) {
    Bytes bytes;  // of the whole call
    for (const Tensor& chunk : chunks_) {
      bytes += chunk.bytes();
    }
    passing_ = bytes >= passing_bytes;
    add_scratch();
  }

  Bytes all() {
    for (const Stage& stage : executor_.stages_) {
      finish_sends(stage.local_writes);
      for (const LocalAction& action : stage.local) {
        act(action);
      }
      for (const LocalSum& sum : stage.sums) {
        add_up(sum);
      }
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
    for (std::size_t chunk = 0; chunk < inputs_.size(); ++chunk) {
      bring_in(static_cast<int>(chunk));
    }
    for (const Sending& sending : sendings_) {
      transport_.wait(sending.ticket);
    }
    return bytes_sent_;
  }

 private:
  // A message, or the segment of one, that is under way.
  struct Posted {
    Transport::Ticket ticket;
    std::vector<MessagePart> parts = {};  // of a receive: where it goes, unless it is there
    Tensor staged = {};                   // where it is then, unless it is read in place
  };
  // A message that this step waits for, cut into segments.
  struct Flow {
    bool sends;
    int peer;  // of the transport
    const Lane* lane;
    std::vector<MessagePart> parts;
    std::int64_t elements;
    std::int64_t longest;     // segment
    Tensor staging = {};      // room for as many segments as are posted at a time
    std::int64_t posted = 0;  // elements
    std::vector<Posted> under_way = {};
  };
  // A message that is on its way while later steps run.
  struct Sending {
    const Lane* lane;
    Tensor packed;
    Transport::Ticket ticket;
  };

  void add_scratch() {
    const Schedule& schedule = executor_.schedule_;
    const DType dtype = chunks_.front().dtype();
    std::vector<std::int64_t> lengths;  // of what there is of each chunk
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < schedule.scratch().size(); ++i) {
      const std::int64_t length =
          chunks_[static_cast<std::size_t>(schedule.scratch()[i])].elements();
      const Room room = executor_.rooms_[i];
      lengths.push_back(room == Room::none    ? 0
                        : room == Room::piece ? std::min(length, elements_at_once(dtype))
                                              : length);
      elements += lengths.back();
    }
    const Tensor scratch = elements > 0 ? scratch_.take(dtype, elements) : Tensor();
    std::int64_t first = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      chunks_.push_back(
          lengths[i] > 0
              ? scratch.slice(first, lengths[i])
              : Tensor(dtype,
                       Shape{chunks_[static_cast<std::size_t>(schedule.scratch()[i])].elements()},
                       nullptr));
      first += lengths[i];
    }
  }

  // Of sums of several terms.
  static std::int64_t elements_at_once(DType dtype) { return piece.value / size_of(dtype).value; }

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
      backend_.copy(chunks_[chunk], inputs_[chunk], passing_);
      inputs_[chunk] = Tensor();
    }
  }

  // --- Local actions -----------------------------------------------------------------------------

  void act(const LocalAction& action) {
    if (chunks_[action.chunk].elements() == 0) {
      return;
    }
    if (action.verb == Verb::reduce) {
      bring_in(action.chunk);
      backend_.combine(chunks_[action.chunk], content(action.source), op_);
    } else {
      backend_.copy(chunks_[action.chunk], content(action.source), passing_);
      forget_input(action.chunk);
    }
  }

  void add_up(const LocalSum& sum) {
    const Tensor chunk = chunks_[sum.chunk];
    const std::int64_t count = chunk.elements();
    if (count == 0) {
      return;
    }
    const Tensor first_term = content(sum.terms.front());
    if (sum.terms.size() == 1) {
      if (!first_term.same_view(chunk)) {
        backend_.copy(chunk, first_term, passing_);
      }
      forget_input(sum.chunk);
      return;
    }
    const bool in_place =
        std::ranges::any_of(sum.terms, [&](int term) { return content(term).same_view(chunk); });
    const bool begins_in_chunk = sum.terms.size() > 2 && sum.workplace < 0;
    const bool passing = passing_ && !in_place && !begins_in_chunk;
    const std::int64_t at_once =
        sum.terms.size() > 2 ? std::min(count, elements_at_once(chunk.dtype())) : count;
    for (std::int64_t first = 0; first < count; first += at_once) {
      const std::int64_t length = std::min(at_once, count - first);
      const Tensor out = chunk.slice(first, length);
      const Tensor work = sum.workplace < 0 ? out : chunks_[sum.workplace].slice(0, length);
      Tensor so_far = first_term.slice(first, length);
      for (std::size_t i = 1; i < sum.terms.size(); ++i) {
        const bool last = i + 1 == sum.terms.size();
        const Tensor& to = last ? out : work;
        backend_.combine(to, so_far, content(sum.terms[i]).slice(first, length), op_,
                         last && passing);
        so_far = to;
      }
    }
    forget_input(sum.chunk);
  }

  void give_back() {
    for (const Transport::Ticket ticket : borrowed_) {
      transport_.done_reading(ticket);
    }
    borrowed_.clear();
  }

  // --- Messages ----------------------------------------------------------------------------------

  // Waits for earlier sends of what is going to be written.
  void finish_sends(const std::vector<int>& written) {
    int left = 0;  // chunks of sends that are to be waited for
    for (const int chunk : written) {
      left += sends_of_[chunk];
    }
    for (auto sending = sendings_.begin(); left > 0;) {
      const auto& actions = sending->lane->actions;
      const auto hits = std::ranges::count_if(actions, [&](const Action& action) {
        return std::ranges::binary_search(written, action.chunk);
      });
      if (hits == 0) {
        ++sending;
        continue;
      }
      left -= static_cast<int>(hits);
      transport_.wait(sending->ticket);
      for (const Action& action : actions) {
        --sends_of_[action.chunk];
      }
      if (sending->packed.defined()) {
        scratch_.give_back(sending->packed);
      }
      sending = sendings_.erase(sending);
    }
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
    const bool in_place = transport_.in_place(peer);
    const std::int64_t longest =
        in_place ? elements
                 : std::max<std::int64_t>(1, route_.segment.value / size_of(dtype).value);
    if (!sends && lane.borrows && !in_place) {
      chunks_[lane.actions.front().chunk] = scratch_.take(dtype, elements);
    }
    // What lies side by side in its place need not be packed.
    const auto at_home = [&](const Action& action) { return !is_input(action.chunk); };
    if (sends && std::ranges::any_of(lane.actions, at_home)) {
      for (const Action& action : lane.actions) {
        bring_in(action.chunk);
      }
    }
    std::vector<MessagePart> parts;
    for (const Action& action : lane.actions) {
      append(parts, action.verb, sends ? content(action.chunk) : chunks_[action.chunk],
             content(action.chunk));
      if (!sends) {
        forget_input(action.chunk);
      }
    }
    if (sends && elements <= longest) {
      const Tensor packed = parts.size() > 1 ? scratch_.take(dtype, elements) : Tensor();
      sendings_.push_back({&lane, packed, send(peer, parts, packed)});
      for (const Action& action : lane.actions) {
        ++sends_of_[action.chunk];
      }
      return;
    }
    Flow& flow = flows_.emplace_back(Flow{sends, peer, &lane, std::move(parts), elements, longest});
    if (sends ? flow.parts.size() > 1 : !in_place && !has_place(flow.parts)) {
      flow.staging =
          scratch_.take(dtype, std::min(elements, static_cast<std::int64_t>(window) * longest));
    }
  }

  void finish_flows() {
    oldest_.clear();
    for (Flow& flow : flows_) {
      post(flow);
      oldest_.push_back(flow.under_way.front().ticket);
    }
    while (!flows_.empty()) {
      const std::size_t which = transport_.wait_any(oldest_);
      Flow& flow = flows_[which];
      if (!flow.sends) {
        arrive(*flow.lane, flow.under_way.front());
      }
      flow.under_way.erase(flow.under_way.begin());
      post(flow);
      if (!flow.under_way.empty()) {
        oldest_[which] = flow.under_way.front().ticket;
        continue;
      }
      if (flow.staging.defined()) {
        scratch_.give_back(flow.staging);
      }
      std::swap(flow, flows_.back());
      flows_.pop_back();
      oldest_[which] = oldest_.back();
      oldest_.pop_back();
    }
  }

  // As many segments as there may be.
  void post(Flow& flow) {
    while (flow.posted < flow.elements && flow.under_way.size() < window) {
      const std::int64_t count = std::min(flow.longest, flow.elements - flow.posted);
      Tensor staged;
      if (flow.staging.defined()) {  // where the segment before the last `window` ones was
        staged = flow.staging.slice(flow.posted % flow.staging.elements(), count);
      }
      std::vector<MessagePart> parts =
          count == flow.elements ? std::move(flow.parts) : cut(flow.parts, flow.posted, count);
      flow.posted += count;
      flow.under_way.push_back(flow.sends ? Posted{send(flow.peer, parts, staged)}
                                          : receive(flow, std::move(parts), staged, count));
    }
  }

  // What joins parts travels in `packed`.
  Transport::Ticket send(int peer, const std::vector<MessagePart>& parts, const Tensor& packed) {
    const Tensor& travels = parts.size() > 1 ? packed : parts.front().tensor;
    if (parts.size() > 1) {
      std::int64_t first = 0;
      for (const MessagePart& part : parts) {
        backend_.copy(packed.slice(first, part.tensor.elements()), part.tensor);
        first += part.tensor.elements();
      }
    }
    bytes_sent_ += travels.bytes();
    return transport_.send(peer, route_.signature, travels);
  }

  // Whether a message can be received where it belongs.
  static bool has_place(const std::vector<MessagePart>& parts) {
    return parts.size() == 1 && parts.front().tensor.defined() &&
           parts.front().verb == Verb::receive;
  }

  Posted receive(const Flow& flow, std::vector<MessagePart> parts, const Tensor& staged,
                 std::int64_t count) {
    if (has_place(parts) && !transport_.in_place(flow.peer)) {
      return {transport_.receive(flow.peer, route_.signature, parts.front().tensor)};
    }
    if (staged.defined()) {
      return {transport_.receive(flow.peer, route_.signature, staged), std::move(parts), staged};
    }
    const DType dtype = chunks_.front().dtype();
    return {transport_.read(flow.peer, route_.signature, dtype, count), std::move(parts)};
  }

  // What has arrived goes where it belongs, or is kept for the next step's local actions.
  void arrive(const Lane& lane, const Posted& posted) {
    if (posted.parts.empty()) {
      return;
    }
    const bool in_place = !posted.staged.defined();
    const Tensor message = in_place ? transport_.reading(posted.ticket) : posted.staged;
    if (Tensor& chunk = chunks_[lane.actions.front().chunk]; lane.borrows && !chunk.defined()) {
      chunk = message;
      borrowed_.push_back(posted.ticket);
      return;
    }
    std::int64_t first = 0;
    for (const MessagePart& part : posted.parts) {
      const Tensor arrived = message.slice(first, part.tensor.elements());
      if (part.verb == Verb::receive_reduce) {
        backend_.combine(part.tensor, part.content, arrived, op_,
                         passing_ && !part.content.same_view(part.tensor));
      } else {
        backend_.copy(part.tensor, arrived, passing_);
      }
      first += part.tensor.elements();
    }
    if (in_place) {
      transport_.done_reading(posted.ticket);
    }
  }

  const Executor& executor_;
  std::vector<Tensor> chunks_;  // data, then scratch
  std::vector<Tensor> inputs_;  // of data chunks that hold their first content; else undefined
  const ReduceOp op_;
  Backend& backend_;
  Scratch& scratch_;
  Transport& transport_;
  const Route& route_;
  std::vector<Flow> flows_;
  std::list<Sending> sendings_;
  std::vector<int> sends_of_;  // of each chunk, how many of them
  std::vector<Transport::Ticket> borrowed_;
  std::vector<Transport::Ticket> oldest_;  // of each flow
  bool passing_;                           // whether what comes out is written past the caches
  Bytes bytes_sent_;
};

Bytes Executor::run(std::span<const Tensor> chunks, std::span<const Tensor> inputs, ReduceOp op,
                    Backend& backend, Scratch& scratch, const Route& route) {
  return Run(*this, chunks, inputs, op, backend, scratch, route).all();
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
