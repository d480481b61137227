// How much a benchmark moves, as people ask for it, as an operation can take it, and what bandwidth
// means: the conventions of nccl-tests (doc/PERFORMANCE.md there), so that figures compare.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "collectives/schedule.h"
#include "runtime/bytes.h"
#include "runtime/dtype.h"

namespace ringworld {

// Reads "8:256M:4", which is 8, 32, 128, ... up to 256 MiB; or a list, "8,4096,1M". Letters are
// powers of 1024, as in parse_bytes. Throws UsageError that names `option`.
std::vector<Bytes> parse_sizes(std::string_view text, std::string_view option);

// A buffer: of all_gather and gather the output, of every other operation the input (of scatter the
// root's).
struct BufferSize {
  std::int64_t elements = 0;  // of the whole
  std::int64_t block = 0;     // of each rank's part, where the operation has parts, else the whole
  Bytes bytes;                // of the whole

  bool operator==(const BufferSize&) const = default;
};

// The largest buffer of up to `asked` bytes that has whole elements, and as many for each rank
// where the operation has parts; at least one of each. Nothing for a barrier.
BufferSize fit(Operation operation, Bytes asked, DType dtype, int ranks);

// Bus bandwidth / algorithm bandwidth, where the latter is the buffer's bytes over the time: how
// much each link of a machine must carry at least, whatever the number of ranks.
double bus_factor(Operation operation, int ranks);

}  // namespace ringworld
