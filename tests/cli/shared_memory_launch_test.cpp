// Shared memory where the system allows it, and where it does not.
#include <gtest/gtest.h>

#include "tests/cli/launch.h"

namespace ringworld {
namespace {

const std::string sum_of_three = "call all_reduce --values '[[1],[2],[3]]' --json - ";

// The command with so little address space that no arena can be mapped.
CommandResult launch_without_room(const std::string& arguments) {
  return run_command("bash -c \"ulimit -v 20000000; " + launch_line(3, arguments) + "\"", 60);
}

TEST(SharedMemory, IsUsedWhereItCanBe) {
  const CommandResult result = launch(3, sum_of_three);
  EXPECT_EQ(result.exit_code, 0);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["conditions"]["transport"], "shared");
  EXPECT_EQ(json["results"], nlohmann::json::parse("[[6.0],[6.0],[6.0]]"));
}

TEST(SharedMemory, IsNotUsedWhenMessagesAreAskedFor) {
  const CommandResult result = launch(3, sum_of_three + "--transport mpi");
  EXPECT_EQ(nlohmann::json::parse(result.output)["conditions"]["transport"], "mpi");
}

TEST(SharedMemory, GivesWayToMessagesAndSaysSoOnce) {
  const CommandResult result = launch_without_room("call all_reduce --values '[[1],[2],[3]]'");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("messages go through MPI instead"), std::string::npos)
      << result.output;
  EXPECT_EQ(result.output.find("ringworld: "), result.output.rfind("ringworld: ")) << result.output;
  EXPECT_NE(result.output.find("   2  3      6"), std::string::npos) << result.output;
}

TEST(SharedMemory, ThatIsAskedForAndCannotBeIsAnError) {
  const CommandResult result =
      launch_without_room("call all_reduce --values '[[1],[2],[3]]' --transport shared");
  EXPECT_EQ(result.exit_code, 5) << result.output;
  EXPECT_NE(result.output.find("use --transport mpi, or auto"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("ringworld: "), result.output.rfind("ringworld: ")) << result.output;
}

// As if on two machines: within each, memory is shared, between them there are messages.
TEST(SharedMemory, IsThatOfOneMachine) {
  const CommandResult result =
      launch(4,
             "call all_reduce --values '[[1],[2],[3],[4]]' --nodes 2 --json - --algorithm "
             "hierarchical:2:ring:recursive_doubling:ring");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["conditions"]["transport"], "mixed");
  EXPECT_EQ(json["results"], nlohmann::json::parse("[[10.0],[10.0],[10.0],[10.0]]"));
}

// The order of the ranks: ((1e8 + 1) + 1) - 1e8 is 0 in f32, and 2 in another order.
TEST(Reproducible, AddsInTheOrderOfTheRanksWhateverTheTransport) {
  for (const std::string transport : {"shared", "mpi"}) {
    const CommandResult result =
        launch(4,
               "call all_reduce --values '[[1e8],[1],[1],[-1e8]]' --algorithm auto "
               "--reproducible --json - --transport " +
                   transport);
    EXPECT_EQ(nlohmann::json::parse(result.output)["results"],
              nlohmann::json::parse("[[0.0],[0.0],[0.0],[0.0]]"));
  }
  const CommandResult refused =
      launch(4, "call all_reduce --values '[[1],[1],[1],[1]]' --algorithm ring --reproducible");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_NE(refused.output.find("does not add in the order of the ranks"), std::string::npos)
      << refused.output;
}

}  // namespace
}  // namespace ringworld
