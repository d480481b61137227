// ringworld show shards, without mpiexec: the map as text, JSON and page, and what is refused.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/xml.h"

namespace ringworld {
namespace {

CommandResult show_shards(const std::string& arguments) {
  return run_alone("show shards " + arguments);
}

TEST(ShowShards, SaysWhoHoldsWhat) {
  expect_facts(show_shards("--world 4 --strategy ddp"), 0,
               {"ddp on dp=4,pp=1,tp=1: gpt2-tiny in f32, adamw\n", "\nwte.weight (256, 128)\n",
                "  PGO  ranks 0-3  replica x4  512.00 KiB  all of (256, 128)\n"});
  expect_facts(show_shards("--world 4 --strategy zero1"), 0,
               {"  PG-  ranks 0-3  replica x4  256.00 KiB  all of (256, 128)\n",
                "  --O  rank  3    shard        64.00 KiB  elements 24576:32768 of (256, 128)\n",
                "copies of the model        4.00       4.00       1.00\n"});
  // A world that is not given is the mesh's.
  expect_facts(show_shards("--mesh dp=2,tp=2 --strategy fsdp --sequence-parallel"), 0,
               {"fsdp on dp=2,pp=1,tp=2 with sequence parallelism", "of these elements"});
}

TEST(ShowShards, FitsATerminal) {
  for (const std::string arguments :
       {"--strategy fsdp", "--strategy zero2 --mesh dp=64,tp=2",
        "--model gpt2-xl --strategy fsdp --mesh dp=3,pp=2,tp=5 --precision bf16",
        "--model llama-3-70b --strategy zero1 --mesh dp=2,tp=8",
        "--strategy fsdp --world 64 --tensor h.1.mlp.c_fc.weight"}) {
    const CommandResult result = show_shards(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100u) << line;
    }
  }
}

// What the map says a rank holds is what a step of its dry run holds.
TEST(ShowShards, HoldsWhatADryRunDoes) {
  for (const std::string options :
       {"--strategy ddp --mesh tp=4", "--strategy zero2 --precision bf16",
        "--strategy fsdp --mesh dp=2,pp=2,tp=1"}) {
    const CommandResult shown = show_shards(options + " --world 4 --json -");
    ASSERT_EQ(shown.exit_code, 0) << shown.output;
    const auto map = nlohmann::json::parse(shown.output);
    ASSERT_EQ(map.at("ranks").size(), 4u);
    for (const auto& rank : map.at("ranks")) {
      const CommandResult run = run_alone("train --dry-run --json - --world 4 --rank " +
                                          rank.at("rank").dump() + " " + options);
      ASSERT_EQ(run.exit_code, 0) << run.output;
      const auto peak = nlohmann::json::parse(run.output).at("peak_bytes");
      for (const auto& [state, bytes] : rank.at("bytes").items()) {
        EXPECT_EQ(bytes, peak.at(state)) << options << " " << state;
      }
    }
  }
}

TEST(ShowShards, JsonHoldsEverySlice) {
  const CommandResult result =
      show_shards("--mesh dp=2,tp=2 --strategy zero1 --tensor h.0.attn.c_attn.weight --json -");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["schema"], "ringworld.show_shards");
  EXPECT_EQ(json["conditions"]["mesh"], "dp=2,pp=1,tp=2");
  ASSERT_EQ(json["tensors"].size(), 1u);
  const auto& tensor = json["tensors"][0];
  EXPECT_EQ(tensor["shape"], nlohmann::json::parse("[384, 128]"));
  ASSERT_EQ(tensor["parts"].size(), 4u);
  const auto& part = tensor["parts"][1];  // the second of two tensor ranks
  EXPECT_EQ(part["shape"], nlohmann::json::parse("[192, 128]"));
  EXPECT_EQ(part["split"]["axis"], 0);
  EXPECT_EQ(part["split"]["parts"],
            nlohmann::json::parse(R"([{"first": 64, "count": 64}, {"first": 192, "count": 64},
                                      {"first": 320, "count": 64}])"));
  EXPECT_EQ(part["parameters"],
            (nlohmann::json{{"first", 0}, {"count", 192 * 128}, {"bytes", 192 * 128 * 4}}));
  EXPECT_EQ(json["ranks"][3]["data"], 1);
  EXPECT_EQ(json["ranks"][3]["tensor"], 1);
}

TEST(ShowShards, DrawsAPage) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("shards.html");
  expect_facts(show_shards("--world 3 --strategy zero1 --html " + path), 0, {"wte.weight"});
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string page = text.str();
  const std::string doctype = "<!DOCTYPE html>";
  ASSERT_TRUE(page.starts_with(doctype));
  std::string tags = "?>" + page.substr(doctype.size());
  for (std::size_t at; (at = tags.find("&#160;")) != std::string::npos;) {
    tags.erase(at, 6);
  }
  EXPECT_EQ(malformed(tags), "");
  EXPECT_NE(page.find("h.0..3.mlp.c_fc.weight"), std::string::npos);
  EXPECT_NE(page.find("rank 2: parameters: all of (256, 128), 128.00 KiB; "), std::string::npos);
}

TEST(ShowShards, TakesOptionsFromAFile) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("run.toml", "[\"show shards\"]\nstrategy = \"zero2\"\n");
  expect_facts(show_shards("--config " + path + " --world 2"), 0, {"zero2 on dp=2,pp=1,tp=1"});
}

TEST(ShowShards, Help) {
  expect_facts(show_shards("--help"), 0,
               {"Usage: ringworld show shards", "--tensor", "--shard-group", "--html"});
  expect_facts(run_alone("show --help"), 0, {"ringworld show shards --help"});
}

TEST(ShowShards, WhatCannotBeShownIsRefusedOnce) {
  const auto refused = [](const std::string& arguments,
                          std::initializer_list<std::string_view> facts) {
    const CommandResult result = run_alone("show " + arguments);
    expect_facts(result, 2, facts);
    EXPECT_EQ(result.output.find("ringworld: "), result.output.rfind("ringworld: "));
  };
  refused("shard", {"shard", "did you mean shards?", "pipeline"});
  refused("", {"an operation is missing", "shards"});
  refused("shards --strategy zero4", {"--strategy", "zero4", "zero1, zero2"});
  refused("shards --world 0", {"--world", "'0'"});
  refused("shards --world 100000", {"--world", "'100000'", "512"});
  refused("shards --world 4 --mesh dp=2,tp=4",
          {"--mesh", "dp 2 x pp 1 x tp 4 = 8 ranks", "there are 4"});
  refused("shards --mesh dp=256,tp=4", {"--mesh", "1024 ranks", "at most 512"});
  refused("shards --mesh tp=3", {"heads", "3"});
  refused("shards --mesh pp=64", {"layers", "64"});
  refused("shards --strategy ddp --shard-group 2", {"--shard-group", "ddp"});
  refused("shards --strategy fsdp --world 6 --shard-group 4", {"--shard-group 4", "1, 2, 3, 6"});
  refused("shards --tensor h.0.attn.c_atn.weight",
          {"--tensor", "h.0.attn.c_atn.weight", "did you mean h.0.attn.c_attn.weight?"});
  refused("shards --world 65 --html x.html", {"--html", "65 ranks", "at most 64"});
  refused("shards --html - --json -", {"--html", "--json", "standard output"});
  refused("shards --offload optimizer", {"--offload"});
  refused("shards --heads 3", {"heads"});
}

TEST(ShowShards, AFileThatCannotBeWrittenIsNamedFirst) {
  for (const std::string option : {"--html", "--json"}) {
    const CommandResult result = show_shards(option + " /no/such/place");
    expect_facts(result, 3, {option, "/no/such/place"});
    EXPECT_EQ(result.output.find("PGO"), std::string::npos);
  }
}

TEST(ShowShards, OnePrintsUnderMpiexec) {
  const CommandResult result = launch(2, "show shards --world 3");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "wte.weight"), 1u);
}

}  // namespace
}  // namespace ringworld
