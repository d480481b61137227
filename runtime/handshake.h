// How the ranks of a world get to know one another before they share memory: everybody tells
// everybody, through messages.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#ifdef __linux__
#include <sys/stat.h>
#endif

#include "runtime/raw.h"
#include "runtime/transport.h"

namespace ringworld {

// What every rank tells every other before anything is mapped.
struct Hello {
  std::int64_t has_arena;
  std::int64_t process;
  std::int64_t file;
  std::int64_t size;
  std::uint64_t nonce;
  std::uint64_t machine;
};

// Whether all went well, and if not, why.
struct Outcome {
  char why_not[240];
};

// Equal for processes that see each other's numbers: one kernel, one process namespace.
inline std::uint64_t machine_of_this_process() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
#ifdef __linux__
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) == 0) {
    text += fmt::format(" {}", status.st_ino);
  }
#endif
  return std::hash<std::string>()(text);
}

// Everybody's value, by rank, through messages of the transport below.
template <typename T>
std::vector<T> exchange(Transport& below, const T& own) {
  const auto device = Device::create({});
  const auto tensor = [&] {
    return Tensor(DType::i8, Shape{sizeof(T)},
                  device->allocate(Bytes(sizeof(T)), Category::communication));
  };
  const Tensor sent = tensor();
  std::memcpy(raw_bytes(sent), &own, sizeof(T));
  std::vector<T> all(static_cast<std::size_t>(below.world_size()), own);
  std::vector<Tensor> received(all.size());
  std::vector<Transport::Ticket> tickets;
  for (int peer = 0; peer < below.world_size(); ++peer) {
    if (peer != below.rank()) {
      Tensor& from_peer = received[static_cast<std::size_t>(peer)] = tensor();
      tickets.push_back(below.receive(peer, 0, from_peer));
      tickets.push_back(below.send(peer, 0, sent));
    }
  }
  for (const Transport::Ticket ticket : tickets) {
    below.wait(ticket);
  }
  for (std::size_t peer = 0; peer < all.size(); ++peer) {
    if (received[peer].defined()) {
      std::memcpy(&all[peer], raw_bytes(received[peer]), sizeof(T));
    }
  }
  return all;
}

}  // namespace ringworld
