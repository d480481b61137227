// What leaves the device for a slower tier while it is not needed, and what that moves.
//
// ZeRO-Offload (Ren et al., USENIX ATC 2021) keeps the optimizer's state in host memory and updates
// it there, ZeRO-Infinity (Rajbhandari et al., SC 2021) keeps it in files. Bytes moved for each
// element and step, where g is the size of a gradient's element (and of the state's and master's),
// v of a value's, and s the number of states (AdamW 2, SGD 1, without momentum 0):
//
//   level      device to host   host to device              file: read, written
//   optimizer  2g               g (v = g or mixed alike)    s g, s g
//   master     g                v                           (s + 1) g, (s + 1) g
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/file_tier.h"
#include "runtime/host_tier.h"

namespace ringworld {

enum class OffloadLevel : std::uint8_t {
  none,
  optimizer,  // moments and velocities; what is updated comes down and goes up again
  master,     // a copy of what is updated as well: gradients go down, new values go up
};
inline constexpr OffloadLevel all_offload_levels[] = {OffloadLevel::none, OffloadLevel::optimizer,
                                                      OffloadLevel::master};
std::string_view name_of(OffloadLevel level);

// The tiers outlive the optimizer.
struct OffloadOptions {
  OffloadLevel level = OffloadLevel::none;
  HostTier* host = nullptr;  // where updates are computed; needed at any level but none
  FileTier* file = nullptr;  // where the state is kept; none: in host memory
  // Updates run in blocks of this much gradient. Up to three blocks are in host memory at once: one
  // comes, one is computed, one goes.
  Bytes block{1 << 20};
};

struct OffloadTraffic {
  Bytes to_host;    // from the device
  Bytes to_device;  // from host memory
  Bytes file_read;
  Bytes file_written;
  double seconds_waited = 0;  // in which transfers went on and nothing was computed
};
inline OffloadTraffic operator-(const OffloadTraffic& a, const OffloadTraffic& b) {
  return {a.to_host - b.to_host, a.to_device - b.to_device, a.file_read - b.file_read,
          a.file_written - b.file_written, a.seconds_waited - b.seconds_waited};
}

}  // namespace ringworld
