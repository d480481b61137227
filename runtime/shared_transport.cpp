// Ranks of one machine, which read each other's memory.
//
// Every rank writes to its own arena only and maps those of the others for reading. Its front holds
// an outbox for each peer, a ring of slots, and for each peer the number of its messages that this
// rank is done with. A message is a slot: a signature, and where the data lie in the sender's
// arena, which the receiver copies, or reads in place. Small messages travel in the slot itself,
// behind one cache line or in it, so that data and flag come together and the send is over at once.
// A tensor that lies elsewhere is copied into the arena first.
//
//   sender                                        receiver
//   slot[i % slots] = message i
//   slot.number = i + 1          ------------->   sees the number, copies or reads
//   the send is over             <-------------   taken = i + 1
//
// A small message is over when it is sent; that it was taken is only told once for several, when
// their slots are to be used again, and by every message that goes the other way: so ranks that
// both send need not look at a word that the other one changes.
//
// Who sleeps has its flag `asleep` up and waits on the very word that is going to change; who
// changes a word looks at the flag after that, and wakes. Between the two stands a barrier, for
// which the sleeper pays alone (membarrier): the fast path has no fence.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include <fmt/format.h>

#ifdef __linux__
#include <unistd.h>
#endif

#include "runtime/error.h"
#include "runtime/handshake.h"
#include "runtime/raw.h"
#include "runtime/shared_front.h"
#include "runtime/transport.h"
#include "runtime/waiting.h"

namespace ringworld {
namespace {

// Of a tensor without elements there may be no address.
void copy_bytes(std::byte* to, const std::byte* from, Bytes bytes) {
  if (bytes.value > 0) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes.value));
  }
}

class SharedTransport final : public Transport {
 public:
  SharedTransport(Transport& below, std::shared_ptr<SharedArena> arena)
      : below_(below), arena_(std::move(arena)), own_core_(below.own_core()) {}

  // Maps the others' arenas. Returns why that cannot be, or nothing.
  std::string connect(const std::vector<Hello>& ranks) {
    take_part_in_barriers();
    const std::uint64_t machine = ranks[static_cast<std::size_t>(rank())].machine;
    const auto front_of = [](std::byte* begin) { return reinterpret_cast<Front*>(begin); };
    own_ = front_of(arena_->begin());
    index_.assign(ranks.size(), -1);
    int locals = 0;
    int self = -1;
    for (int rank = 0; rank < world_size(); ++rank) {
      if (ranks[static_cast<std::size_t>(rank)].machine == machine) {
        self = rank == this->rank() ? locals : self;
        index_[static_cast<std::size_t>(rank)] = locals++;
      }
    }
    local_ranks_ = locals;
    peers_.resize(static_cast<std::size_t>(locals));
    for (int rank = 0; rank < world_size(); ++rank) {
      const int local = index_[static_cast<std::size_t>(rank)];
      if (local < 0 || local == self) {
        continue;
      }
      const Hello& hello = ranks[static_cast<std::size_t>(rank)];
      if (hello.has_arena == 0) {
        continue;  // that rank says why
      }
      Peer& peer = peers_[static_cast<std::size_t>(local)];
      std::string why_not;
      peer.arena = MappedArena::open(hello.process, static_cast<int>(hello.file), Bytes(hello.size),
                                     why_not);
      if (peer.arena == nullptr) {
        return why_not;
      }
      peer.front = front_of(peer.arena->begin());
      if (peer.front->nonce != hello.nonce) {
        return fmt::format("process {} has another file {}", hello.process, hello.file);
      }
      peer.rank = rank;
      peer.storage = std::make_shared<const Storage>(nullptr, peer.arena->begin(),
                                                     peer.arena->size(), Category::communication);
      peer.outbox = &own_->outboxes(locals)[local];
      peer.inbox = &own_->inboxes()[local];
      peer.their_outbox = &peer.front->outboxes(locals)[self];
      peer.their_inbox = &peer.front->inboxes()[self];
    }
    return {};
  }

  int rank() const override {
    return below_.rank();
  }
  int world_size() const override {
    return below_.world_size();
  }
  int local_ranks() const override {
    return below_.local_ranks();
  }
  bool own_core() const override {
    return own_core_;
  }
  std::string_view name() const override {
    return local_ranks_ == world_size() ? "shared" : "mixed";
  }
  std::string description() const override {
    return fmt::format("{}, shared memory{}", below_.description(),
                       local_ranks_ == world_size() ? "" : " within machines");
  }
  void bind(Backend& backend) override {
    below_.bind(backend);
  }
  void set_timeout(std::chrono::milliseconds timeout) override {
    timeout_ = timeout;
    below_.set_timeout(timeout);
  }

  Ticket send(int to, Signature signature, const Tensor& x) override {
    check_usable();
    Peer* peer = local(to);
    if (peer == nullptr) {
      return below_.send(to, signature, x);
    }
    const std::uint32_t number = peer->posted_sends++;
    const std::int64_t bytes = x.bytes().value;
    const bool stays = bytes > longest_inline && arena_->contains(raw_bytes(x));
    if (peer->waiting.empty() && has_room(*peer, number)) {
      publish(*peer, number, signature, x);
      return stays ? ticket(Kind::send, to, number) : over;
    }
    peer->waiting.push_back({number, signature, x});
    return ticket(stays ? Kind::send : Kind::queued, to, number);
  }

  Ticket receive(int from, Signature signature, const Tensor& out) override {
    if (Peer* peer = local(from)) {
      const auto [number, receive] = post(*peer, signature, out.dtype(), out.elements());
      receive->out = out;
      return ticket(Kind::receive, from, number);
    }
    return below_.receive(from, signature, out);
  }

  Ticket read(int from, Signature signature, DType dtype, std::int64_t elements) override {
    if (Peer* peer = local(from)) {
      return ticket(Kind::receive, from, post(*peer, signature, dtype, elements).first);
    }
    return below_.read(from, signature, dtype, elements);
  }

  const Tensor& reading(Ticket ticket) override {
    if (kind_of(ticket) == Kind::below) {
      return below_.reading(ticket);
    }
    Peer& peer = *local(peer_of(ticket));
    const std::size_t index = number_of(ticket) % slot_count;
    const Slot& slot = (*peer.their_outbox)[index];
    const std::int64_t offset = slot.is_inline ? slot.data - peer.arena->begin() : slot.offset;
    // As a rule the slot's last message was alike: making a handle costs more than reading it.
    View& view = peer.views[index];
    if (view.offset != offset || view.x.elements() != slot.elements ||
        view.x.dtype() != slot.dtype) {
      view = {offset, Tensor(slot.dtype, Shape{slot.elements}, peer.storage,
                             offset / size_of(slot.dtype).value)};
    }
    return view.x;
  }

  void done_reading(Ticket ticket) override {
    if (kind_of(ticket) == Kind::below) {
      below_.done_reading(ticket);
      return;
    }
    finish(*local(peer_of(ticket)), number_of(ticket));
  }

  bool takes_small(int peer) const override {
    return index_[static_cast<std::size_t>(peer)] >= 0;
  }
  bool in_place(int peer) const override {
    return index_[static_cast<std::size_t>(peer)] >= 0;
  }

  bool test(Ticket ticket) override {
    check_usable();
    return complete(ticket);
  }

  std::size_t wait_any(std::span<const Ticket> tickets) override {
    check_usable();
    if (const std::size_t done = find_complete(tickets); done < tickets.size()) {
      return done;
    }
    for (Waiting waiting(own_core_, timeout_);;) {
      if (!waiting.pause()) {
        wait_long(tickets, waiting);
      }
      check_usable();
      if (const std::size_t done = find_complete(tickets); done < tickets.size()) {
        return done;
      }
    }
  }

  void attend() override {
    below_.attend();
  }

  Board& board() override {
    return own_->board;
  }

  std::vector<std::optional<Said>> statements(std::chrono::milliseconds patience) override {
    std::vector<std::optional<Said>> statements(static_cast<std::size_t>(world_size()));
    if (local_ranks_ < world_size()) {
      tell_below();
      statements = below_.statements(patience);
    }
    statements[static_cast<std::size_t>(rank())] = Said{ringworld::read(own_->board), true};
    std::vector<std::uint32_t> beats;
    for (const Peer& peer : peers_) {
      beats.push_back(peer.arena == nullptr ? 0 : peer.front->beats.load());
    }
    // Who waits shows it every few milliseconds, this rank included.
    const auto deadline = std::chrono::steady_clock::now() + std::min(patience, longest_silence);
    for (Waiting waiting(false, patience);; waiting.sleep()) {
      ++own_->beats;
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        if (peers_[i].arena != nullptr) {
          const bool waits = peers_[i].front->beats.load() != beats[i];
          statements[static_cast<std::size_t>(peers_[i].rank)] =
              Said{ringworld::read(peers_[i].front->board), waits};
        }
      }
      if (std::chrono::steady_clock::now() >= deadline) {
        return statements;
      }
    }
  }

  std::vector<int> ended() const override {
    return below_.ended();
  }
  LibraryCollectives* library() override {
    return below_.library();
  }

  void abandon() override {
    abandoned_ = true;
    below_.abandon();
  }

 private:
  // --- Tickets: what kind of verb, which peer, which message -----------------------------------

  // queued: a send that is over when it has left.
  enum class Kind : std::uint64_t { below, send, queued, receive };

  static Ticket ticket(Kind kind, int peer, std::uint32_t number) {
    return static_cast<Ticket>(kind) << 60 | static_cast<Ticket>(peer) << 32 | number;
  }
  static Kind kind_of(Ticket ticket) {
    return static_cast<Kind>(ticket >> 60);
  }
  static int peer_of(Ticket ticket) {
    return static_cast<int>(ticket >> 32 & 0xfffffff);
  }
  static std::uint32_t number_of(Ticket ticket) {
    return static_cast<std::uint32_t>(ticket);
  }

  // --- What this rank knows of a peer ----------------------------------------------------------

  struct WaitingSend {
    std::uint32_t number;
    Signature signature;
    Tensor tensor;
  };

  struct Receive {
    Signature signature = 0;
    Tensor out = {};  // undefined: it is read where it lies
    DType dtype = DType::f32;
    std::int64_t elements = 0;
    bool finished = false;
  };

  // A block of the arena that holds a copy until the peer has taken the message.
  struct Staged {
    std::uint32_t number;
    std::byte* block;
    Bytes bytes;
  };

  // A message where it lies in the peer's arena.
  struct View {
    std::int64_t offset = -1;
    Tensor x = {};
  };

  struct Peer {
    std::unique_ptr<MappedArena> arena = nullptr;  // nullptr: this rank itself
    int rank = -1;
    Front* front = nullptr;
    std::shared_ptr<const Storage> storage = nullptr;  // its whole arena
    // Messages to it.
    Outbox* outbox = nullptr;
    const Inbox* their_inbox = nullptr;
    std::uint32_t posted_sends = 0;
    std::uint32_t seen_taken = 0;          // as far as this rank has heard
    std::deque<WaitingSend> waiting = {};  // for a free slot
    std::deque<Staged> staged = {};
    // Messages from it.
    const Outbox* their_outbox = nullptr;
    Inbox* inbox = nullptr;
    std::uint32_t posted_receives = 0;
    std::uint32_t arrived = 0;
    std::uint32_t taken = 0;
    std::uint32_t told_taken = 0;  // what the peer can see of it
    std::vector<Receive> receives = std::vector<Receive>(slot_count);  // by number modulo size
    std::array<View, slot_count> views = {};                           // of what is read, by slot
  };

  Peer* local(int rank) {
    const int index = index_[static_cast<std::size_t>(rank)];
    return index < 0 ? nullptr : &peers_[static_cast<std::size_t>(index)];
  }

  // --- Sending ---------------------------------------------------------------------------------

  static bool has_room(Peer& peer, std::uint32_t number) {
    if (number - peer.seen_taken >= slot_count) {
      peer.seen_taken = peer.their_inbox->taken.load(std::memory_order_acquire);
    }
    return number - peer.seen_taken < slot_count;
  }

  void publish(Peer& peer, std::uint32_t number, Signature signature, const Tensor& x) {
    Slot& slot = (*peer.outbox)[number % slot_count];
    const std::byte* data = raw_bytes(x);
    const Bytes bytes = x.bytes();
    slot.taken = peer.taken;
    slot.signature = signature;
    slot.elements = x.elements();
    slot.dtype = x.dtype();
    slot.is_inline = bytes.value <= longest_inline;
    if (slot.is_inline) {
      copy_bytes(slot.data, data, bytes);
    } else {
      slot.offset =
          (arena_->contains(data) ? data : staged(peer, number, data, bytes)) - arena_->begin();
    }
    change(peer, slot.number, number + 1);
  }

  const std::byte* staged(Peer& peer, std::uint32_t number, const std::byte* data, Bytes bytes) {
    const std::uint32_t taken = peer.their_inbox->taken.load(std::memory_order_acquire);
    while (!peer.staged.empty() && is_past(taken, peer.staged.front().number)) {
      arena_->release(peer.staged.front().block, peer.staged.front().bytes);
      peer.staged.pop_front();
    }
    std::byte* block = arena_->allocate(bytes);
    if (block == nullptr) {
      throw OutOfDeviceMemory(
          fmt::format("no {} of shared memory left for a message", to_string(bytes)));
    }
    std::memcpy(block, data, static_cast<std::size_t>(bytes.value));
    peer.staged.push_back({number, block, bytes});
    return block;
  }

  void flush(Peer& peer) {
    while (!peer.waiting.empty() && has_room(peer, peer.waiting.front().number)) {
      const WaitingSend& next = peer.waiting.front();
      publish(peer, next.number, next.signature, next.tensor);
      peer.waiting.pop_front();
    }
  }

  // Counters wrap around: message `number` is among the first `count`.
  static bool is_past(std::uint32_t count, std::uint32_t number) {
    return static_cast<std::int32_t>(count - number) > 0;
  }

  // Sets a word that the peer may be waiting for.
  static void change(const Peer& peer, std::atomic<std::uint32_t>& word, std::uint32_t value) {
    word.store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (peer.front->asleep.load(std::memory_order_relaxed) != 0) {
      wake_sleepers(word);
    }
  }

  // --- Receiving -------------------------------------------------------------------------------

  std::pair<std::uint32_t, Receive*> post(Peer& peer, Signature signature, DType dtype,
                                          std::int64_t elements) {
    check_usable();
    if (peer.posted_receives - peer.taken == peer.receives.size()) {
      grow(peer);
    }
    const std::uint32_t number = peer.posted_receives++;
    Receive& receive = peer.receives[number % peer.receives.size()];
    receive.signature = signature;
    receive.dtype = dtype;
    receive.elements = elements;
    receive.finished = false;
    return {number, &receive};
  }

  static void grow(Peer& peer) {
    std::vector<Receive> larger(2 * peer.receives.size());
    for (std::uint32_t number = peer.taken; number != peer.posted_receives; ++number) {
      larger[number % larger.size()] = std::move(peer.receives[number % peer.receives.size()]);
    }
    peer.receives = std::move(larger);
  }

  // Takes what has come from the peer, in order.
  void take(Peer& peer) {
    while (peer.arrived != peer.posted_receives) {
      const Slot& slot = (*peer.their_outbox)[peer.arrived % slot_count];
      if (slot.number.load(std::memory_order_acquire) != peer.arrived + 1) {
        return;
      }
      Receive& receive = peer.receives[peer.arrived % peer.receives.size()];
      if (slot.signature != receive.signature || slot.elements != receive.elements ||
          slot.dtype != receive.dtype) {
        give_up(fmt::format("meets rank {} in another call", peer.rank));
      }
      const std::uint32_t number = peer.arrived++;
      if (is_past(slot.taken, peer.seen_taken)) {
        peer.seen_taken = slot.taken;
      }
      if (receive.out.defined()) {
        const std::byte* data = slot.is_inline ? slot.data : peer.arena->begin() + slot.offset;
        copy_bytes(raw_bytes(receive.out), data, receive.out.bytes());
        receive.out = Tensor();
        finish(peer, number);
      }
    }
  }

  void finish(Peer& peer, std::uint32_t number) {
    peer.receives[number % peer.receives.size()].finished = true;
    bool stays = false;  // among those that are done with now
    while (peer.taken != peer.arrived &&
           peer.receives[peer.taken % peer.receives.size()].finished) {
      stays = stays || !(*peer.their_outbox)[peer.taken % slot_count].is_inline;
      ++peer.taken;
    }
    // The sender waits for a message that stays where it is, and for free slots.
    if (peer.taken - peer.told_taken >= (stays ? 1 : slot_count / 2)) {
      peer.told_taken = peer.taken;
      change(peer, peer.inbox->taken, peer.taken);
    }
  }

  // --- Waiting ---------------------------------------------------------------------------------

  std::size_t find_complete(std::span<const Ticket> tickets) {
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      if (complete(tickets[i])) {
        return i;
      }
    }
    return tickets.size();
  }

  bool complete(Ticket ticket) {
    if (ticket == over) {
      return true;
    }
    if (kind_of(ticket) == Kind::below) {
      return below_.test(ticket);
    }
    Peer& peer = *local(peer_of(ticket));
    if (kind_of(ticket) == Kind::receive) {
      take(peer);
    } else {
      flush(peer);
    }
    return is_here(ticket);
  }

  // Whether a verb with a rank of this machine is complete, as far as has been taken and flushed.
  bool is_here(Ticket ticket) {
    if (ticket == over || kind_of(ticket) == Kind::below) {
      return ticket == over;
    }
    const Peer& peer = *local(peer_of(ticket));
    if (kind_of(ticket) == Kind::receive) {
      return is_past(peer.arrived, number_of(ticket));
    }
    if (kind_of(ticket) == Kind::queued) {
      return peer.waiting.empty() || is_past(peer.waiting.front().number, number_of(ticket));
    }
    return is_past(peer.their_inbox->taken.load(std::memory_order_acquire), number_of(ticket));
  }

  void wait_long(std::span<const Ticket> tickets, Waiting& waiting) {
    // What is posted makes progress, whichever of it is waited for.
    for (Peer& peer : peers_) {
      if (peer.arena != nullptr) {
        flush(peer);
        take(peer);
      }
    }
    if (const std::vector<int> ended = below_.ended(); !ended.empty()) {
      for (Peer& peer : peers_) {  // what it sent before it ended counts
        if (peer.arena != nullptr) {
          take(peer);
        }
      }
      if (std::ranges::none_of(tickets, [&](Ticket ticket) { return is_here(ticket); })) {
        give_up(fmt::format("waits, but the process of rank {} has ended", ended.front()));
      }
      return;
    }
    ++own_->beats;
    if (waiting.expired()) {
      const Kind kind = kind_of(tickets.front());
      const std::string peer = kind == Kind::below
                                   ? "a rank of another machine"
                                   : fmt::format("rank {} to {}", peer_of(tickets.front()),
                                                 kind == Kind::receive ? "send" : "receive");
      give_up(
          fmt::format("waited {} s for {}", static_cast<double>(timeout_.count()) / 1000, peer));
    }
    if (local_ranks_ < world_size()) {
      tell_below();
      below_.attend();
      waiting.sleep();
      return;
    }
    const Peer& peer = *local(peer_of(tickets.front()));
    const std::uint32_t number = number_of(tickets.front());
    const bool sends = kind_of(tickets.front()) != Kind::receive;
    const bool queued = kind_of(tickets.front()) == Kind::queued;  // for a free slot
    const std::atomic<std::uint32_t>& word =
        sends ? peer.their_inbox->taken : (*peer.their_outbox)[number % slot_count].number;
    const std::uint32_t value = word.load(std::memory_order_acquire);
    if (sends ? is_past(value, queued ? number - slot_count : number) : value == number + 1) {
      return;
    }
    own_->asleep.store(1, std::memory_order_seq_cst);
    const bool seen = barrier_for_all();
    sleep_while_equal(word, value,
                      tickets.size() == 1 && seen ? longest_sleep : longest_sleep / 10);
    own_->asleep.store(0, std::memory_order_relaxed);
  }

  void check_usable() {
    if (!broken_.empty()) {
      throw CommunicationError(broken_);
    }
    if (abandoned_.load(std::memory_order_relaxed)) {
      give_up("ends its communication");
    }
  }

  [[noreturn]] void give_up(const std::string& reason) {
    broken_ = fmt::format("rank {} {}", rank(), reason);
    throw CommunicationError(broken_);
  }

  // Other machines ask the transport below.
  void tell_below() {
    for (std::size_t word = 0; word < own_->board.size(); ++word) {
      below_.board()[word] = own_->board[word].load(std::memory_order_relaxed);
    }
  }

  static constexpr std::chrono::milliseconds longest_sleep{10};
  static constexpr std::chrono::milliseconds longest_silence{500};

  Transport& below_;
  const std::shared_ptr<SharedArena> arena_;
  const bool own_core_;
  Front* own_ = nullptr;
  int local_ranks_ = 1;
  std::vector<int> index_;   // among this machine's ranks, by rank; -1: on another machine
  std::vector<Peer> peers_;  // by that index
  std::chrono::milliseconds timeout_{0};
  std::atomic<bool> abandoned_ = false;
  std::string broken_;  // why, once a wait has thrown
};

}  // namespace

bool same_on_all_ranks(Transport& transport, std::int64_t value) {
  const std::vector<std::int64_t> values = exchange(transport, value);
  return std::ranges::count(values, value) == static_cast<std::ptrdiff_t>(values.size());
}

Bytes shared_front(int local_ranks) {
  return Bytes(static_cast<std::int64_t>(sizeof(Front) + static_cast<std::size_t>(local_ranks) *
                                                             (sizeof(Inbox) + sizeof(Outbox))));
}

std::unique_ptr<Transport> make_shared_transport(Transport& below,
                                                 std::shared_ptr<SharedArena> arena, int machines,
                                                 std::string& why_not) {
  Hello own{};
  own.machine = machine_of_this_process() * 31 +
                static_cast<std::uint64_t>(below.rank() * machines / below.world_size());
  if (arena != nullptr) {
    own.has_arena = 1;
    own.file = arena->file();
    own.size = arena->size().value;
#ifdef __linux__
    own.process = getpid();
#endif
    own.nonce = std::uint64_t{std::random_device()()} << 32 | std::random_device()();
    reinterpret_cast<Front*>(arena->begin())->nonce = own.nonce;
  }
  const std::vector<Hello> hellos = exchange(below, own);

  auto transport = std::make_unique<SharedTransport>(below, arena);
  Outcome outcome{};
  const std::string failure = arena == nullptr ? why_not : transport->connect(hellos);
  failure.copy(outcome.why_not, sizeof outcome.why_not - 1);
  if (arena == nullptr && failure.empty()) {
    std::strcpy(outcome.why_not, "a rank has no arena");
  }
  const std::vector<Outcome> outcomes = exchange(below, outcome);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].why_not[0] != '\0') {
      why_not = fmt::format("rank {}: {}", rank, outcomes[rank].why_not);
      return nullptr;
    }
  }
  return transport;
}

}  // namespace ringworld
