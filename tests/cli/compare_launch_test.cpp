// ringworld compare, without mpiexec, on dumps that ranks on threads wrote.
#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/dumps.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

CommandResult compare(const std::string& arguments) {
  return run_alone("compare " + arguments);
}

TEST(CompareLaunch, EqualDumpsEndWithZero) {
  const TemporaryDirectory directory;
  dump_step(directory.path("a"), {.ranks = 2, .strategy = "fsdp"});
  dump_step(directory.path("b"), {});
  const CommandResult run = compare(directory.path("a") + " " + directory.path("b"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  expect_facts(run, {"gpt2-tiny, step 2", "fsdp, 2 ranks, f64", "ddp, 1 rank, f64",
                     "equal: every tensor up to 1.0e-12"});
  EXPECT_EQ(run.output.find("WRONG"), std::string::npos) << run.output;
  // Rounding differs: with no tolerance at all, no bound is kept.
  EXPECT_EQ(compare(directory.path("a") + " " + directory.path("b") + " --bound 0").exit_code, 1);
}

TEST(CompareLaunch, NamesTheFirstDifferenceItsRatioAndItsRank) {
  const TemporaryDirectory directory;
  DumpedStep spoilt{.ranks = 2};
  spoilt.after_gradients = multiply_gradient(1, "h.1.mlp.c_fc.weight", 2);
  dump_step(directory.path("a"), spoilt);
  dump_step(directory.path("b"), {});
  const std::string paths = directory.path("a") + " " + directory.path("b");
  const CommandResult run = compare(paths);
  EXPECT_EQ(run.exit_code, 1) << run.output;
  expect_facts(run, {"first difference, in the order of execution: gradient of "
                     "h.1.mlp.c_fc.weight: relative error 1.0e+00, ratio to B 2;",
                     "held by rank 1 of A and rank 0 of B", "WRONG"});

  const CommandResult json_run = compare(paths + " --json -");
  EXPECT_EQ(json_run.exit_code, 1);
  const auto json = nlohmann::json::parse(json_run.output);
  EXPECT_EQ(json.at("schema"), "ringworld.compare");
  EXPECT_EQ(json.at("equal"), false);
  EXPECT_EQ(json.at("bound"), 1e-12);
  EXPECT_EQ(json.at("first_different").at("name"), "h.1.mlp.c_fc.weight");
  EXPECT_EQ(json.at("first_different").at("ranks_a"), nlohmann::json::array({1}));
  EXPECT_NEAR(json.at("first_different").at("ratio"), 2, 1e-9);
  EXPECT_EQ(json.at("tensors").size(), 65u);
}

TEST(CompareLaunch, SaysWhatOnlyOneHasAndFails) {
  const TemporaryDirectory directory;
  dump_step(directory.path("a"), {.step = 1});
  dump_step(directory.path("b"), {.global_batch = 2, .step = 1});
  const CommandResult run =
      compare(directory.path("a") + " " + directory.path("b") + " --bound 1e9");
  EXPECT_EQ(run.exit_code, 1) << run.output;
  expect_facts(run, {"only in A: sequences 2 to 3 of output of embedding and 6 more tensors",
                     "do not have the same"});
}

TEST(CompareLaunch, WrongUseAndWrongFilesAreErrors) {
  const TemporaryDirectory directory;
  dump_step(directory.path("a"), {});
  const CommandResult none = compare("--bound 1");
  EXPECT_EQ(none.exit_code, 2);
  expect_facts(none, {"the directories of two dumps are missing"});
  const CommandResult one = compare(directory.path("a"));
  EXPECT_EQ(one.exit_code, 2);
  expect_facts(one, {"the directory of a second dump is missing"});
  const CommandResult missing = compare(directory.path("a") + " " + directory.path("none"));
  EXPECT_EQ(missing.exit_code, 3);
  expect_facts(missing, {"none: holds no dump"});
  const CommandResult third = compare(directory.path("a") + " " + directory.path("a") + " c");
  EXPECT_EQ(third.exit_code, 2);
  const CommandResult help = compare("--help");
  EXPECT_EQ(help.exit_code, 0);
  expect_facts(help, {"ringworld compare A B", "--bound", "--json"});
}

}  // namespace
}  // namespace ringworld
