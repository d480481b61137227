// ringworld show, without mpiexec: tables that fit a terminal, the cost, the verdict, JSON.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

CommandResult show(const std::string& arguments) {
  return run_alone("show " + arguments);
}

TEST(Show, TheRingStepByStep) {
  const CommandResult result = show("reduce_scatter --algorithm ring --ranks 4");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  // As in docs/algorithms.md: after step 1, rank 3 has 1, 2 and 3 in chunk 0.
  expect_facts(result,
               {"ring reduce_scatter, 4 ranks", "start       0      0       1       2       3\n",
                "1           0      0       1       1 2     1-3*\n",
                "2           0      all*    1       1 2     1-3\n", "P - 1 = 3", "(P - 1) n\n",
                "= 3 n by all ranks together, 0.75 n by one on average",
                "right for every number of ranks from 1 to 64."});
}

TEST(Show, EveryOperationFitsATerminal) {
  for (const char* operation :
       {"all_reduce", "reduce_scatter", "all_gather", "broadcast --root 1", "reduce --root 2",
        "all_to_all", "all_to_all --algorithm bruck", "all_reduce --algorithm double_tree",
        "gather --root 3", "scatter --root 3", "barrier"}) {
    const CommandResult result = show(std::string(operation) + " --ranks 8");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    expect_facts(result, {"8 ranks", "steps", "elements sent", "Proof: right"});
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100u) << operation << ": " << line;
    }
  }
}

TEST(Show, JsonHoldsScheduleContentsCostAndVerdict) {
  const CommandResult result = show("broadcast --algorithm tree --ranks 3 --root 1 --json -");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["schema"], "ringworld.show");
  EXPECT_EQ(json["schedules"][1][0][0],
            (nlohmann::json{{"verb", "send"}, {"peer", 0}, {"chunk", 0}}));
  EXPECT_EQ(json["history"].size(), 3u);  // before, and after each of two steps
  EXPECT_EQ(json["history"][0][0][0], nlohmann::json::array());
  EXPECT_EQ(json["history"][2][0][0], nlohmann::json::array({1}));
  EXPECT_EQ(json["cost"]["steps"]["value"], 2);
  EXPECT_EQ(json["cost"]["elements_sent"]["per_element"], 2);
  EXPECT_EQ(json["proof"]["right"], true);
  EXPECT_EQ(json["proof"]["proved_worlds"], 64);

  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/show.json";
  EXPECT_EQ(show("barrier --json " + path).exit_code, 0);
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file)["algorithm"], "dissemination");
}

TEST(Show, WhatCannotBeShownIsRefusedOnce) {
  const auto refused = [](const std::string& arguments,
                          std::initializer_list<std::string_view> facts) {
    const CommandResult result = show(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    expect_facts(result, facts);
    EXPECT_EQ(result.output.find("ringworld: "), result.output.rfind("ringworld: "));
  };
  refused("", {"an operation is missing", "all_reduce", "halving_doubling"});
  refused("all_redcue", {"all_redcue", "did you mean all_reduce?"});
  refused("all_reduce --algorithm rign", {"rign", "did you mean ring?", "double_tree"});
  refused("all_reduce --algorithm hierarchical:3:ring:tree:ring", {"3 nodes do not divide"});
  refused("all_reduce --ranks 65", {"--ranks", "65", "at most 64"});
  refused("all_reduce --ranks 0", {"--ranks", "0"});
  refused("all_reduce --ranks four", {"--ranks", "four"});
  refused("broadcast --root 4", {"--root", "4", "0 to 3"});
  refused("all_reduce --rank 4", {"--rank", "--ranks"});
}

TEST(Show, OnePrintsUnderMpiexec) {
  const CommandResult result = launch(3, "show barrier");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output.find("Proof:"), result.output.rfind("Proof:"));
}

}  // namespace
}  // namespace ringworld
