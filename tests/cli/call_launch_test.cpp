// ringworld call: one collective on given values, between real processes.
#include <gtest/gtest.h>

#include "tests/cli/launch.h"

namespace ringworld {
namespace {

using Json = nlohmann::json;

Json results(int ranks, const std::string& arguments) {
  return parsed(launch(ranks, "call " + arguments + " --json -"))["results"];
}

// The sum of infinities is a NaN with a sign, which nobody asked for.
TEST(Call, WritesNanAsItIsTyped) {
  const CommandResult result = launch(2, "call all_reduce --values '[[\"inf\"],[\"-inf\"]]'");
  expect_facts(result, 0, {" nan "});
  EXPECT_EQ(result.output.find("-nan"), std::string::npos) << result.output;
}

TEST(Call, PrintsWhatEachRankGivesAndGets) {
  const CommandResult result = launch(
      2, "call all_reduce --values '[[1,2,3],[4,5,6]]' --dtype bf16 --op avg --algorithm ring");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* fact : {"ring all_reduce of bf16, avg; 2 ranks", "0  1 2 3  2.5 3.5 4.5",
                           "1  4 5 6  2.5 3.5 4.5"}) {
    EXPECT_NE(result.output.find(fact), std::string::npos) << result.output;
  }
}

TEST(Call, JsonHoldsTheResults) {
  EXPECT_EQ(results(2, "all_reduce --values '[[1,2,3],[4,5,6]]' --dtype bf16 --op avg"),
            Json({{2.5, 3.5, 4.5}, {2.5, 3.5, 4.5}}));
  EXPECT_EQ(results(2, "all_reduce --values '[[1,\"nan\"],[\"inf\",1]]' --algorithm tree"),
            Json::parse(R"([["inf", "nan"], ["inf", "nan"]])"));
}

TEST(Call, AComposition) {
  EXPECT_EQ(results(4,
                    "all_reduce --algorithm hierarchical:2:ring:recursive_doubling:ring "
                    "--values '[[1,2,3],[10,20,30],[100,200,300],[1000,2000,3000]]'"),
            Json({{1111, 2222, 3333}, {1111, 2222, 3333}, {1111, 2222, 3333}, {1111, 2222, 3333}}));
}

// An odd number of ranks, so that nothing divides, and one call of each operation.
TEST(Call, EveryOperation) {
  const std::string values = "--values '[[1,2,3,4],[10,20,30,40],[100,200,300,400]]' ";
  EXPECT_EQ(results(3, "reduce_scatter --algorithm recursive_halving " + values),
            Json({{111, 222}, {333}, {444}}));
  EXPECT_EQ(results(3, "all_gather --algorithm bruck --values '[[1],[],[2,3]]'"),
            Json({{1, 2, 3}, {1, 2, 3}, {1, 2, 3}}));
  EXPECT_EQ(results(3, "broadcast --root 2 --algorithm scatter_all_gather " + values),
            Json({{100, 200, 300, 400}, {100, 200, 300, 400}, {100, 200, 300, 400}}));
  EXPECT_EQ(results(3, "reduce --root 1 --dtype i32 --op max " + values),
            Json({Json::array(), {100, 200, 300, 400}, Json::array()}));
  EXPECT_EQ(results(3, "all_to_all --values '[[[1],[2,3],[]],[[],[],[4]],[[5],[],[6]]]'"),
            Json({{1, 5}, {2, 3}, {4, 6}}));
  EXPECT_EQ(results(3, "all_to_all --algorithm bruck --values '[[1,2,3],[4,5,6],[7,8,9]]'"),
            Json({{1, 4, 7}, {2, 5, 8}, {3, 6, 9}}));
  EXPECT_EQ(results(3, "gather --values '[[1],[2],[3]]'"),
            Json({{1, 2, 3}, Json::array(), Json::array()}));
  EXPECT_EQ(results(3, "scatter --root 1 --values '[[],[1,2,3],[]]'"), Json({{1}, {2}, {3}}));
  EXPECT_EQ(results(3, "barrier"), Json({Json::array(), Json::array(), Json::array()}));
}

TEST(Call, BadInputIsRefusedOnce) {
  const auto refused = [](const std::string& arguments,
                          std::initializer_list<std::string_view> facts) {
    const CommandResult result = launch(2, "call " + arguments, 30);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_EQ(result.output.find("ringworld: "), result.output.rfind("ringworld: "));
    for (const std::string_view fact : facts) {
      EXPECT_NE(result.output.find(fact), std::string::npos) << "no \"" << fact << "\" in:\n"
                                                             << result.output;
    }
  };
  refused("all_reduce", {"--values: missing"});
  refused("barrier --values '[[1],[2]]'", {"--values", "a barrier has none"});
  refused("all_reduce --values '[[1,2,3],[4,5]]'", {"3, 2 numbers", "all_reduce"});
  refused("all_reduce --values '[[1]]'", {"for 1 ranks", "started 2"});
  refused("all_reduce --values '[1,2]'", {"no JSON list of lists"});
  refused("all_reduce --values '[[1],[2]'", {"no JSON list of lists"});
  refused("all_reduce --values '[[1e400],[2]]'", {"1e400", "inf"});
  refused("all_reduce --values '[[1],[\"x\"]]'", {"\"x\" of rank 1 is no number"});
  refused("all_reduce --dtype i8 --values '[[1],[300]]'", {"300 of rank 1 is no i8"});
  refused("all_reduce --dtype i32 --values '[[1.5],[1]]'", {"1.5 of rank 0 is no i32"});
  refused("all_reduce --dtype f31 --values '[[1],[2]]'", {"--dtype", "f31", "f32"});
  refused("all_reduce --op mean --values '[[1],[2]]'", {"--op", "mean", "sum"});
  refused("all_reduce --algorithm bruk --values '[[1],[2]]'", {"bruk", "ring"});
  refused("allreduce --values '[[1],[2]]'", {"allreduce", "did you mean all_reduce?"});
  refused("reduce --root 2 --values '[[1],[2]]'", {"--root", "2", "0 to 1"});
  refused("all_to_all --values '[[1,2,3],[4,5,6]]'", {"3 numbers cannot be cut"});
  refused("scatter --values '[[1],[]]'", {"1 numbers cannot be cut"});
  refused("all_to_all --values '[[[1]],[[2],[3]]]'", {"rank 0 has 1 lists", "2 ranks"});
  refused("all_to_all --algorithm bruck --values '[[[1],[2]],[[3],[4]]]'", {"needs equal counts"});
}

}  // namespace
}  // namespace ringworld
