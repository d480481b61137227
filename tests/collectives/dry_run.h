// What a rank's calls cost: in a real run, and in a dry run of the same rank.
#pragma once

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "runtime/meta_backend.h"
#include "tests/collectives/every_call.h"

namespace ringworld {

struct Cost {
  TrafficByLabel traffic;  // by label
  Ledger ledger;           // of calls that were made before
};

// Of every call.
inline Cost cost_of_calls(Communicator& communicator, DType dtype, std::int64_t count) {
  EveryCall calls(communicator, dtype, count);
  calls.make();
  communicator.backend().device().reset_peaks();
  calls.make();
  communicator.use(Operation::all_reduce, "direct");  // whose ranks hold what they read for a while
  for (int i = 0; i < 20; ++i) {                      // with tensors that go at once
    communicator.all_reduce_value(1.5, ReduceOp::sum, "value");
    communicator.barrier("barrier");
  }
  return {communicator.traffic_by_label(), communicator.backend().device().ledger()};
}

inline Cost dry_cost_of_calls(int rank, int ranks, const NullOptions& as,
                              const CommunicatorOptions& options, DType dtype, std::int64_t count) {
  const auto transport = make_null_transport(rank, ranks, as);
  const auto backend = make_meta_backend(make_meta_device(Bytes(0)), 1);
  Communicator communicator(*transport, *backend, options);
  return cost_of_calls(communicator, dtype, count);
}

inline void expect_same(const Cost& dry, const Cost& real) {
  EXPECT_EQ(dry.ledger.held, real.ledger.held);
  EXPECT_EQ(dry.ledger.peak, real.ledger.peak);
  EXPECT_EQ(dry.ledger.total_peak, real.ledger.total_peak);
  ASSERT_EQ(dry.traffic.size(), real.traffic.size());
  for (const auto& [label, traffic] : real.traffic) {
    ASSERT_TRUE(dry.traffic.contains(label)) << label;
    EXPECT_EQ(dry.traffic.at(label).calls, traffic.calls) << label;
    EXPECT_EQ(dry.traffic.at(label).bytes_sent, traffic.bytes_sent) << label;
  }
}

}  // namespace ringworld
