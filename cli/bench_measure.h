// How long calls take, one algorithm beside the other, and whether what they return is right.
//
// The time of a call is the slowest rank's. Every rank reads its clock around every call, or, where
// one takes less than some microseconds, around a batch of calls, whose time is divided by their
// number; there is no barrier between calls, which would be measured as well. Only where there is a
// root, calls are timed one by one, each after a barrier that is not: the root of a broadcast would
// run ahead of the others, and the time be that of a send. Of each of these times the largest of
// all ranks is taken, and of those the minimum, the median and the maximum.
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
  std::int64_t iterations = 0;  // times to take; 0: as many as fill 0.2 s, between 5 and 1000
  std::int64_t warmup = 1;      // calls before, beside those that find out how long one takes
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
