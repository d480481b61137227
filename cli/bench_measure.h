// How long calls take, one algorithm beside the other, and whether what they return is right.
//
// A call is over when the slowest rank has ended it, and takes the time since the one before it was
// over; calls that take less than 200 us are timed so many at once. There is no barrier between
// calls, which would be measured as well, and the time of a call from a barrier on would be about
// who left that first. Where there is a root, it is another rank each time, as in the Intel MPI
// Benchmarks, and as many calls are timed at once as bring every rank's turn: else the root of a
// broadcast would run ahead of the others, and the time be that of a send. Of these times the
// minimum, the median and the maximum are taken.
//
// Algorithms take turns in a few rounds, so that what else the machine does meets all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cli/bench_call.h"

namespace ringworld {

struct MeasureOptions {
  // Times to take; 0: as many as fill 0.3 s, up to 1000 and at least 5, with a root 3.
  std::int64_t iterations = 0;
  // Calls before, with every root, beside those that find out how long one takes.
  std::int64_t warmup = 1;
};

struct Timing {
  double min = 0;  // seconds
  double median = 0;
  double max = 0;
  std::int64_t iterations = 0;
  std::int64_t calls_per_iteration = 0;
};

// By contender; the same on every rank.
std::vector<Timing> measure(Communicator& communicator, BenchCall& call, const BufferSize& size,
                            std::span<const Contender> contenders, const MeasureOptions& options);

struct Verification {
  std::int64_t wrong = 0;  // elements that differ from what they must be, over all ranks
  Bytes bytes_sent;        // by the rank that sends most
};

// One call on fresh data; the same on every rank. With `flip` one bit of what came out is flipped
// before it is looked at. A barrier is wrong once for each rank that left before the last had come,
// where clocks can tell: on one machine.
Verification verify(Communicator& communicator, BenchCall& call, const BufferSize& size,
                    const Contender& contender, bool flip, bool one_machine);

}  // namespace ringworld
