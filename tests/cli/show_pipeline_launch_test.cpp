// ringworld show pipeline, without mpiexec: the timeline, the numbers that must come out, files,
// and what is refused.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/xml.h"

namespace ringworld {
namespace {

CommandResult show_pipeline(const std::string& arguments) {
  return run_alone("show pipeline " + arguments);
}

TEST(ShowPipeline, OneForwardOneBackward) {
  expect_facts(show_pipeline("--schedule 1f1b --stages 4 --micro-batches 8"), 0,
               {"1f1b, 4 stages, 8 micro-batches\n",
                "\nstage 0  F0F1F2F3............B0--F4B1--F5B2--F6B3--F7B4--..B5--..B6--..B7--\n",
                "\nstage 3  ......F0B0--F1B1--F2B2--F3B3--F4B4--F5B5--F6B6--F7B7--............\n",
                "\ntotal time     33, of which every stage works 24\n",
                "\nbubble         9: 37.5 % over ideal, 27.3 % of the total\n",
                "\nlive at peak   4 3 2 1\n", "Proof: right"});
}

TEST(ShowPipeline, TheOtherSchedules) {
  expect_facts(show_pipeline("--schedule fill-drain"), 0,
               {"27.3 % of the total", "live at peak   8 on every stage\n"});
  expect_facts(
      show_pipeline("--schedule interleaved-1f1b --chunks 2"), 0,
      {"2 chunks on each stage", "bubble         4.5: 18.8 % over ideal, 15.8 % of the total",
       "live at peak   5.5 4.5 3.5 2.5\n"});
  expect_facts(show_pipeline("--schedule zb-h1"), 0,
               {"(p - 1)(TF + TB - TW) = 3\n", "11.1 % of the total", "whole        4 3 2 1\n"});
  expect_facts(show_pipeline("--schedule zb-h2 --micro-batches 6"), 0,
               {"longest stage", "but only for m >= 2 p - 1"});
}

TEST(ShowPipeline, FewerMicroBatchesThanStages) {
  const char* shares[] = {"75.0 %", "60.0 %", "50.0 %", "42.9 %", "37.5 %"};
  for (const std::string schedule : {"fill-drain", "1f1b"}) {
    for (int m = 1; m <= 5; ++m) {
      expect_facts(
          show_pipeline("--schedule " + schedule + " --micro-batches " + std::to_string(m)), 0,
          {std::string(shares[m - 1]) + " of the total"});
    }
  }
}

TEST(ShowPipeline, TakesMeasuredTimes) {
  expect_facts(show_pipeline("--schedule zb-h2 --stages 8 --micro-batches 24 --forward-time 18.522 "
                             "--backward-input-time 18.086 --backward-weight-time 9.337"),
               0, {"(p - 1)(TF + TB - 2 TW) = 125.538\n", "its bubble     125.538: "});
  expect_facts(show_pipeline("--schedule 1f1b --stages 8 --micro-batches 24 --forward-time 18.522 "
                             "--backward-input-time 18.086 --backward-weight-time 9.337 "
                             "--communication-time 0.601"),
               0, {"24.3 % of the total", "without communication"});
}

TEST(ShowPipeline, FitsATerminal) {
  for (const std::string arguments :
       {"", "--schedule interleaved-1f1b --stages 8 --micro-batches 64 --chunks 3",
        "--schedule zb-h2 --stages 8 --micro-batches 9 --communication-time 0.3",
        "--stages 64 --micro-batches 512"}) {
    const CommandResult result = show_pipeline(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100u) << line;
    }
  }
}

TEST(ShowPipeline, WritesFiles) {
  const TemporaryDirectory directory;
  const std::string base = directory.path() + "/pipeline";
  expect_facts(show_pipeline("--schedule zb-h1 --svg " + base + ".svg --trace " + base +
                             ".trace --json " + base + ".json"),
               0, {"Proof: right"});
  const auto text_of = [&](const std::string& suffix) {
    std::ostringstream text;
    text << std::ifstream(base + suffix).rdbuf();
    return text.str();
  };
  EXPECT_EQ(malformed(text_of(".svg")), "");
  EXPECT_EQ(occurrences(text_of(".svg"), "class=\"action\""), 4 * 8 * 3u);
  EXPECT_EQ(occurrences(text_of(".trace"), "\"ph\":\"X\""), 4 * 8 * 3u);
  EXPECT_TRUE(nlohmann::json::parse(text_of(".trace"))["traceEvents"].is_array());
  EXPECT_EQ(nlohmann::json::parse(text_of(".json"))["schedule"], "zb-h1");
}

TEST(ShowPipeline, JsonHoldsEverything) {
  const CommandResult result = show_pipeline("--stages 4 --micro-batches 8 --json -");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["schema"], "ringworld.show_pipeline");
  EXPECT_EQ(json["chunks"], 1);
  EXPECT_EQ(json["parts"], nlohmann::json::parse("[[0], [1], [2], [3]]"));
  EXPECT_EQ(json["total_time"], 33);
  EXPECT_EQ(json["work"], 24);
  EXPECT_EQ(json["bubble"]["time"], 9);
  EXPECT_EQ(json["bubble"]["over_ideal"], 0.375);
  EXPECT_EQ(json["longest_stage"]["closed_form"]["value"], 9);
  EXPECT_EQ(json["live"]["stages"][1]["micro_batches"], 3);
  EXPECT_EQ(json["timeline"][3][1],
            (nlohmann::json{
                {"work", "backward"}, {"micro_batch", 0}, {"chunk", 0}, {"start", 4}, {"end", 6}}));
  EXPECT_EQ(json["proof"]["right"], true);
  EXPECT_EQ(json["proof"]["outputs_on_offer"], 0);
}

TEST(ShowPipeline, TakesOptionsFromAFile) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/run.toml";
  std::ofstream(path) << "stages = 3\n[show]\nranks = 5\n[\"show pipeline\"]\nmicro-batches = 5\n";
  expect_facts(show_pipeline("--config " + path), 0, {"1f1b, 3 stages, 5 micro-batches\n"});
}

TEST(ShowPipeline, Help) {
  expect_facts(show_pipeline("--help"), 0,
               {"Usage: ringworld show pipeline", "--backward-weight-time", "zb-h2", "Qi et al."});
  expect_facts(run_alone("show --help"), 0, {"ringworld show pipeline --help"});
}

TEST(ShowPipeline, WhatCannotBeShownIsRefusedOnce) {
  const auto refused = [](const std::string& arguments,
                          std::initializer_list<std::string_view> facts) {
    const CommandResult result = run_alone("show " + arguments);
    expect_facts(result, 2, facts);
    EXPECT_EQ(result.output.find("ringworld: "), result.output.rfind("ringworld: "));
  };
  refused("pipelin", {"pipelin", "did you mean pipeline?"});
  refused("", {"an operation is missing", "pipeline"});
  refused("pipeline --schedule 1f1d", {"--schedule", "1f1d", "did you mean 1f1b?", "zb-h1"});
  refused("pipeline --stage 4", {"--stage", "did you mean --stages?"});
  refused("pipeline --stages 0", {"--stages", "'0'", "1 or more"});
  refused("pipeline --chunks 2", {"'1f1b'", "--chunks 2", "interleaved-1f1b"});
  refused("pipeline --schedule interleaved-1f1b --micro-batches 10",
          {"--stages 4", "--micro-batches 10", "use 8 or 12"});
  refused("pipeline --schedule interleaved-1f1b --micro-batches 3",
          {"4 stages", "3 micro-batches"});
  refused("pipeline --forward-time 0", {"--forward-time", "above 0"});
  refused("pipeline --backward-input-time -1", {"--backward-input-time", "0 or more"});
  refused("pipeline --stages 2000 --micro-batches 1000", {"2000000 forwards", "at most 1000000"});
}

TEST(ShowPipeline, AFileThatCannotBeWrittenIsNamedFirst) {
  for (const std::string option : {"--svg", "--trace", "--json"}) {
    const CommandResult result = show_pipeline(option + " /no/such/place");
    expect_facts(result, 3, {option, "/no/such/place"});
    EXPECT_EQ(result.output.find("Proof"), std::string::npos);
  }
}

TEST(ShowPipeline, OnePrintsUnderMpiexec) {
  const CommandResult result = launch(2, "show pipeline");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "Proof:"), 1u);
}

}  // namespace
}  // namespace ringworld
