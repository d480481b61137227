#include "cli/bench_sizes.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

std::vector<std::int64_t> sizes(std::string_view text) {
  std::vector<std::int64_t> values;
  for (const Bytes size : parse_sizes(text, "--sizes")) {
    values.push_back(size.value);
  }
  return values;
}

TEST(BenchSizes, ASeriesAListAndOne) {
  using Values = std::vector<std::int64_t>;
  EXPECT_EQ(sizes("8:2K:4"), (Values{8, 32, 128, 512, 2048}));
  EXPECT_EQ(sizes("8:2047:4"), (Values{8, 32, 128, 512}));
  EXPECT_EQ(sizes("1M:1MiB:2"), Values{1 << 20});
  EXPECT_EQ(sizes("8,4096,1M"), (Values{8, 4096, 1 << 20}));
  EXPECT_EQ(sizes("1.5k"), Values{1536});
  // The last product would not fit 64 bits.
  EXPECT_EQ(sizes("4096P:7000P:1000000000000"), Values{std::int64_t{4096} << 50});
}

TEST(BenchSizes, WhatIsNoneIsRefused) {
  const auto refused = [](std::string_view text, std::initializer_list<std::string_view> facts) {
    expect_error<UsageError>([&] { parse_sizes(text, "--sizes"); }, facts);
  };
  refused("many", {"--sizes", "many", "not a size"});
  refused("", {"--sizes"});
  refused("0", {"--sizes", "'0'"});
  refused("-8", {"'-8'"});
  refused("8,,16", {"--sizes"});
  refused("0:8:2", {"'0'"});
  refused("8:4:2", {"8:4:2", "8 B", "above the last, 4 B"});
  refused("8:64:1", {"8:64:1", "'1'", "2 or more"});
  refused("8:64:1.5", {"'1.5'"});
  refused("8:64:x", {"'x'"});
  refused("8:64", {"FIRST:LAST:FACTOR"});
  refused("8:64:2:2", {"FIRST:LAST:FACTOR"});
}

TEST(BenchSizes, AreRoundedDownToWholeElementsAndEqualParts) {
  const auto fits = [](Operation operation, std::int64_t asked, DType dtype, int ranks) {
    return fit(operation, Bytes(asked), dtype, ranks);
  };
  EXPECT_EQ(fits(Operation::all_reduce, 1027, DType::f32, 3),
            (BufferSize{.elements = 256, .block = 256, .bytes = Bytes(1024)}));
  EXPECT_EQ(fits(Operation::all_gather, 1027, DType::f32, 3),
            (BufferSize{.elements = 255, .block = 85, .bytes = Bytes(1020)}));
  EXPECT_EQ(fits(Operation::broadcast, 3, DType::f64, 8),
            (BufferSize{.elements = 1, .block = 1, .bytes = Bytes(8)}));
  EXPECT_EQ(fits(Operation::all_to_all, 8, DType::f64, 8),
            (BufferSize{.elements = 8, .block = 1, .bytes = Bytes(64)}));
  EXPECT_EQ(fits(Operation::barrier, 0, DType::f32, 8), BufferSize());
}

// nccl-tests, doc/PERFORMANCE.md.
TEST(BenchSizes, BusFactors) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 1), 0);
}

}  // namespace
}  // namespace ringworld
