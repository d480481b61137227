// What ringworld bench is told, and what it refuses before it measures.
#include <gtest/gtest.h>

#include "cli/options.h"
#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

BenchOptions bench(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"bench"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return std::get<BenchOptions>(parse_command_line(all));
}

TEST(BenchOptionsTest, Defaults) {
  const BenchOptions o = bench({"all_reduce"});
  EXPECT_EQ(o.operation, Operation::all_reduce);
  EXPECT_TRUE(o.algorithms.empty());
  EXPECT_EQ(o.sizes.front(), Bytes(8));
  EXPECT_EQ(o.sizes.back(), Bytes(16 << 20));
  EXPECT_EQ(o.in_place, "no");
  EXPECT_FALSE(o.inject_bitflip);
  EXPECT_EQ(bench({"broadcast"}).in_place, "yes");
  EXPECT_EQ(bench({"barrier"}).sizes, std::vector<Bytes>{Bytes(0)});
}

TEST(BenchOptionsTest, Everything) {
  const TemporaryDirectory directory;
  const std::string config =
      directory.write("bench.toml", "[bench]\nsizes = \"1M\"\ninject-bitflip = true\n");
  const BenchOptions o =
      bench({"all_reduce", "--config", config, "--algorithms", "ring,tree", "--dtype", "bf16",
             "--op", "max", "--in-place", "both", "--iterations", "7", "--warmup", "0"});
  EXPECT_EQ(o.sizes, std::vector<Bytes>{Bytes(1 << 20)});
  EXPECT_TRUE(o.inject_bitflip);
  EXPECT_EQ(o.algorithms, (std::vector<std::string>{"ring", "tree"}));
  EXPECT_EQ(o.dtype, DType::bf16);
  EXPECT_EQ(o.op, ReduceOp::max);
  EXPECT_EQ(o.in_place, "both");
  EXPECT_EQ(o.iterations, 7);
  EXPECT_EQ(o.warmup, 0);
  // What every rank must have been told.
  EXPECT_NE(o.settings.find("inject-bitflip=true"), std::string::npos) << o.settings;
  EXPECT_TRUE(bench({"all_reduce", "--inject-bitflip", "--op", "min"}).inject_bitflip);
  EXPECT_TRUE(bench({"all_reduce", "--algorithms", "all"}).algorithms.empty());
}

TEST(BenchOptionsTest, WhatCannotBeIsRefused) {
  const auto refused = [](const std::vector<std::string>& arguments,
                          std::initializer_list<std::string_view> facts) {
    expect_error<UsageError>([&] { bench(arguments); }, facts);
  };
  refused({}, {"bench", "operation", "all_reduce"});
  refused({"allreduce"}, {"allreduce", "all_reduce"});
  refused({"all_reduce", "--algorithms", "ring,rign"}, {"rign", "ring"});
  refused({"all_reduce", "--dtype", "f31"}, {"--dtype", "f31", "f32"});
  refused({"all_reduce", "--op", "mean"}, {"--op", "mean", "sum"});
  refused({"all_reduce", "--root", "1"}, {"--root", "1", "all_reduce has no root"});
  refused({"all_gather", "--op", "max"}, {"--op", "max", "all_gather reduces nothing"});
  refused({"all_reduce", "--sizes", "big"}, {"--sizes", "big"});
  refused({"all_reduce", "--sizes", "8:64:1"}, {"--sizes", "8:64:1"});
  refused({"all_reduce", "--in-place", "maybe"}, {"--in-place", "maybe"});
  refused({"broadcast", "--in-place", "no"}, {"--in-place", "broadcast", "always"});
  refused({"all_to_all", "--in-place", "both"}, {"--in-place", "all_to_all", "never"});
  refused({"all_reduce", "--chart", "chart.png"}, {"--chart", "chart.png", ".svg"});
  refused({"all_reduce", "--json", "-", "--csv", "-"}, {"--csv", "--json"});
  refused({"all_reduce", "--json", "rows", "--csv", "rows"}, {"rows", "two outputs"});
  refused({"barrier", "--sizes", "8"}, {"--sizes", "barrier"});
  refused({"barrier", "--inject-bitflip"}, {"--inject-bitflip", "barrier"});
  refused({"all_reduce", "--iterations", "-1"}, {"--iterations"});
  refused({"all_reduce", "--inject-bitflip=maybe"}, {"inject-bitflip", "maybe"});
  refused({"all_reduce", "--inject-bitflop"}, {"inject-bitflop", "--inject-bitflip"});
}

}  // namespace
}  // namespace ringworld
