// What lies in the front of a rank's arena, for the other ranks of its machine to read: see
// shared_transport.cpp, which alone includes this.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/transport.h"

namespace ringworld {

inline constexpr std::uint32_t slot_count = 8;
inline constexpr std::int64_t longest_inline = Transport::small_message.value;
inline constexpr std::size_t cache_line = 64;

struct alignas(cache_line) Slot {
  std::atomic<std::uint32_t> number;  // of the message that is here, counted from 1
  std::uint32_t taken;                // Inbox::taken for the rank it goes to, as it was then
  Signature signature;
  std::int64_t elements;
  DType dtype;
  bool is_inline;
  union alignas(8) {
    std::byte data[longest_inline];  // of an inline message
    std::int64_t offset;             // of the data of another one in the sender's arena
  };
};
static_assert(sizeof(Slot) == longest_inline + cache_line);

using Outbox = std::array<Slot, slot_count>;

struct alignas(cache_line) Inbox {
  std::atomic<std::uint32_t> taken;  // messages of one peer that are done with
};

struct Front {
  std::uint64_t nonce;
  alignas(cache_line) std::atomic<std::uint32_t> asleep;
  alignas(cache_line) Board board;
  std::atomic<std::uint32_t> beats;  // changes while the rank waits

  // Behind it: an inbox and an outbox for each rank of the machine.
  Inbox* inboxes() { return reinterpret_cast<Inbox*>(this + 1); }
  Outbox* outboxes(int local_ranks) { return reinterpret_cast<Outbox*>(inboxes() + local_ranks); }
};
static_assert(sizeof(Front) % cache_line == 0 && sizeof(Inbox) == cache_line);

}  // namespace ringworld
