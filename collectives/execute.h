// Runs one rank's schedule on its chunks, over a transport.
//
// What a step sends to one peer is one stream of elements, cut into segments, a few of which are
// posted at any time, so that a segment is reduced while the next ones are under way, and staging
// stays small. A segment within one chunk, or within chunks that lie side by side in memory,
// travels from and to its place; one that joins scattered chunks is packed. A message without
// elements is not sent and not received.
#pragma once

#include <span>
#include <vector>

#include "collectives/schedule.h"
#include "runtime/backend.h"
#include "runtime/transport.h"

namespace ringworld {

// How a schedule reaches the others.
struct Route {
  Transport& transport;
  std::span<const int> ranks;  // of the transport, by the schedule's rank
  Tag tag = 0;
  Bytes segment{1 << 20};
};

// `chunks` are the data chunks, one dtype; those that the schedule does not name may be empty.
// `op` is what reductions do. All ranks pass the same dtype, tag and segment. Returns the bytes
// that this rank sent. Throws CommunicationError as Transport::wait_any does.
Bytes execute(const Schedule& schedule, const std::vector<Tensor>& chunks, ReduceOp op,
              Backend& backend, const Route& route);

// `buffer` as `count` chunks that differ by at most one element (chunk_range).
std::vector<Tensor> even_chunks(const Tensor& buffer, int count);

}  // namespace ringworld
