// Runs one rank's schedule on a buffer, over a transport.
//
// Chunks longer than a segment travel in segments, a few of which are posted at any time, so that a
// segment is reduced while the next ones are under way, and staging stays small. An empty chunk is
// not sent and not received.
#pragma once

#include "collectives/schedule.h"
#include "runtime/transport.h"

namespace ringworld {

// `buffer` holds all chunks. `op` is what receive_reduce does. All ranks pass the same element
// count, dtype, tag and segment. Returns the bytes that this rank sent. Throws CommunicationError
// as Transport::wait_any does.
Bytes execute(const Schedule& schedule, const Tensor& buffer, ReduceOp op, Transport& transport,
              Tag tag, Bytes segment);

}  // namespace ringworld
