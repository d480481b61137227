// ringworld bench: every operation timed and verified between real processes, results as JSON, CSV
// and chart, and what is refused.
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

using Json = nlohmann::json;

// A few calls of everything, on sizes that divide nothing.
const std::string quick = " --iterations 3 --sizes 4,1000,100K ";

Json bench(int ranks, const std::string& arguments, int exit_code = 0) {
  return parsed(launch(ranks, "bench " + arguments + " --json -"), exit_code);
}

class EveryOperation : public testing::TestWithParam<std::string> {};

TEST_P(EveryOperation, IsMeasuredAndRight) {
  const std::string operation = GetParam();
  const bool has_size = operation != "barrier";
  const bool has_root =
      std::set<std::string>{"broadcast", "reduce", "gather", "scatter"}.contains(operation);
  const Json json =
      bench(3, operation + (has_size ? quick : " --iterations 3") + (has_root ? "--root 1" : ""));
  EXPECT_EQ(json["schema"], "ringworld.bench");
  EXPECT_EQ(json["version"], 1);
  for (const char* condition : {"version", "ranks", "cpus_allowed", "mpi_library", "cpu", "date"}) {
    EXPECT_TRUE(json["conditions"].contains(condition)) << condition;
  }
  std::set<std::string> algorithms;
  std::set<std::int64_t> sizes;
  for (const Json& row : json["rows"]) {
    algorithms.insert(row["algorithm"]);
    sizes.insert(row["bytes"].get<std::int64_t>());
    EXPECT_EQ(row["op"], operation);
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["ranks"], 3);
    EXPECT_EQ(row["dtype"], "f32");
    EXPECT_EQ(row["in_place"], operation == "broadcast");
    EXPECT_EQ(row["iterations"], 3);
    const Json& time = row["time_us"];
    EXPECT_GT(time["min"], 0);
    EXPECT_LE(time["min"], time["median"]);
    EXPECT_LE(time["median"], time["max"]);
    if (has_size) {
      const double algbw = row["bytes"].get<double>() / time["median"].get<double>() / 1e3;
      EXPECT_NEAR(row["algbw_gbs"].get<double>() / algbw, 1, 1e-9);
      EXPECT_GT(row["busbw_gbs"], 0);
    }
    EXPECT_GT(row["vs_mpi"], 0);
    EXPECT_EQ(row["ran"] == row["algorithm"], row["algorithm"] != "auto") << row;
    EXPECT_EQ(row["transport"],
              row["algorithm"] == "mpi" ? Json("mpi") : json["conditions"]["transport"]);
    if (row["algorithm"] == "mpi") {
      EXPECT_EQ(row["vs_mpi"], 1);
    } else {
      EXPECT_GT(row["steps"], 0);
      EXPECT_GT(row["bytes_sent_per_rank"], 0);
    }
  }
  EXPECT_TRUE(algorithms.contains("mpi"));
  EXPECT_GE(algorithms.size(), 2u);
  EXPECT_EQ(json["rows"].size(), algorithms.size() * (has_size ? 3 : 1));
  EXPECT_EQ(sizes.size(), has_size ? 3u : 1u);
}

INSTANTIATE_TEST_SUITE_P(Bench, EveryOperation,
                         testing::Values("all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                         "reduce", "all_to_all", "gather", "scatter", "barrier"),
                         [](const auto& operation) { return operation.param; });

TEST(Bench, InPlaceAndOtherFormats) {
  for (const char* arguments :
       {"all_reduce --op avg --dtype bf16", "reduce_scatter --op max --dtype i8",
        "all_gather --dtype f16", "reduce --op min --dtype f64 --root 2", "gather --dtype i64",
        "scatter --dtype i32"}) {
    const Json json = bench(3, arguments + quick + "--in-place both");
    std::size_t in_place = 0;
    for (const Json& row : json["rows"]) {
      EXPECT_EQ(row["wrong"], 0) << row;
      in_place += row["in_place"].get<bool>() ? 1 : 0;
    }
    EXPECT_EQ(2 * in_place, json["rows"].size()) << arguments;
    EXPECT_GE(in_place, 3u);
  }
}

// Bytes as the algorithms' cards have them: ring all-reduce sends 2 (P - 1) / P of the buffer.
TEST(Bench, StepsAndBytesSent) {
  const Json row = bench(4, "all_reduce --algorithms ring --sizes 4K --iterations 1")["rows"][0];
  EXPECT_EQ(row["steps"], 6);
  EXPECT_EQ(row["bytes_sent_per_rank"], 6144);
}

TEST(Bench, ABitflipIsSeen) {
  for (const char* arguments : {"all_reduce --dtype i8", "all_gather --in-place yes",
                                "reduce --root 1 --op max", "broadcast --dtype f64"}) {
    const Json json = bench(2, arguments + quick + "--inject-bitflip", /*exit_code=*/1);
    EXPECT_FALSE(json["rows"].empty());
    for (const Json& row : json["rows"]) {
      EXPECT_EQ(row["wrong"], 1) << row;
    }
  }
  const CommandResult result =
      launch(2, "bench all_reduce --algorithms ring --sizes 8 --iterations 1 --inject-bitflip");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("WRONG: 1 of 1 rows"), std::string::npos) << result.output;
}

TEST(Bench, WritesTableCsvAndChart) {
  const TemporaryDirectory directory;
  const CommandResult result = launch(
      2, "bench all_reduce --algorithms ring,tree" + quick + "--csv " + directory.path("rows.csv") +
             " --chart " + directory.path("rows.svg") + " --json " + directory.path("rows.json"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* fact : {"all_reduce; 2 ranks on ", "algbw", "#wrong",
                           "  102400     25600   f32    sum  ring ", "Every result is right."}) {
    EXPECT_NE(result.output.find(fact), std::string::npos) << result.output;
  }
  EXPECT_EQ(Json::parse(content_of(directory.path("rows.json")))["rows"].size(), 6u);
  const std::string csv = content_of(directory.path("rows.csv"));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 7);
  EXPECT_TRUE(csv.starts_with("op,algorithm,transport,ranks,dtype,redop,bytes,count,in_place,"));
  const std::string svg = content_of(directory.path("rows.svg"));
  EXPECT_NE(svg.find(">ring<"), std::string::npos);
  EXPECT_NE(svg.find(">tree<"), std::string::npos);
}

// Rules of one operation stay when another one is measured, and are replaced by its own.
// Alone, too, the library has no sums of 16 bits of its own.
TEST(Bench, SixteenBitsOnOneRank) {
  for (const char* operation : {"all_reduce", "reduce_scatter", "reduce"}) {
    const Json json = parsed(run_alone(std::string("bench ") + operation +
                                       " --dtype bf16 --iterations 3 --sizes 8 --json -"));
    EXPECT_FALSE(json["rows"].empty());
    for (const Json& row : json["rows"]) {
      EXPECT_EQ(row["wrong"], 0) << row;
    }
  }
}

TEST(Bench, TunesOneOperationAfterTheOther) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("tuning.json");
  const auto tuned = [&](const std::string& arguments) {
    const CommandResult result = launch(2, "bench " + arguments + " --iterations 3 --tune " + path);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::multiset<std::string> rules;
    const Json json = Json::parse(content_of(path));
    EXPECT_EQ(json["schema"], "ringworld.tuning");
    EXPECT_TRUE(json["conditions"].contains("cpu"));
    for (const Json& rule : json["rules"]) {
      EXPECT_EQ(rule["ranks"], 2);
      rules.insert(rule["operation"].get<std::string>() + " " +
                   rule["algorithm"].get<std::string>());
    }
    return rules;
  };
  EXPECT_EQ(tuned("all_reduce --algorithms ring,mpi --sizes 8,4K"),
            (std::multiset<std::string>{"all_reduce ring"}));
  EXPECT_EQ(tuned("all_gather --algorithms bruck --sizes 8"),
            (std::multiset<std::string>{"all_gather bruck", "all_reduce ring"}));
  EXPECT_EQ(tuned("all_reduce --algorithms tree --sizes 8"),
            (std::multiset<std::string>{"all_gather bruck", "all_reduce tree"}));
  const std::string before = content_of(path);
  const CommandResult wrong =
      launch(2, "bench all_reduce --algorithms ring --sizes 8 --inject-bitflip --tune " + path);
  EXPECT_EQ(wrong.exit_code, 1) << wrong.output;
  EXPECT_NE(wrong.output.find("stays as it was"), std::string::npos) << wrong.output;
  EXPECT_EQ(content_of(path), before);
  parsed(launch(2, "bench all_reduce --algorithms ring --sizes 8 --json - --tune " + path));
  directory.write("tuning.json", "{\"rule\": []}");
  const CommandResult broken = launch(2, "bench barrier --tune " + path);
  EXPECT_EQ(broken.exit_code, 2) << broken.output;
  EXPECT_NE(broken.output.find("tuning.json"), std::string::npos) << broken.output;
}

struct Refused {
  std::string arguments;
  int exit_code;
  std::vector<std::string> facts;
};

TEST(Bench, WhatCannotBeMeasuredIsRefusedOnceAndForAll) {
  const TemporaryDirectory directory;
  for (const Refused& refused : std::vector<Refused>{
           {"allreduce", 2, {"allreduce", "did you mean all_reduce?"}},
           {"all_reduce --algorithms rign", 2, {"rign", "did you mean ring?"}},
           {"all_reduce --algorithms hierarchical:2:ring:ring:ring",
            2,
            {"--algorithms", "hierarchical:2:ring:ring:ring", "3 ranks"}},
           {"all_reduce --dtype f31", 2, {"--dtype", "f31"}},
           {"all_reduce --sizes lots", 2, {"--sizes", "lots"}},
           {"all_reduce --sizes 0", 2, {"--sizes", "'0'"}},
           {"all_reduce --sizes 16:8:2", 2, {"16:8:2", "above"}},
           {"all_reduce --sizes 8:16:1", 2, {"8:16:1", "2 or more"}},
           {"all_reduce --sizes 100T", 2, {"--sizes", "100.00 TiB", "available", "largest"}},
           {"broadcast --root 3", 2, {"--root", "3", "0 to 2"}},
           {"all_reduce --chart chart.pdf", 2, {"--chart", ".svg"}},
           {"all_reduce --json " + directory.path("none/rows.json"), 3, {"--json", "rows.json"}},
           {"all_reduce --chart " + directory.path("none/c.svg"), 3, {"--chart", "c.svg"}},
           {"all_reduce --sizes 8 --iterations 1 --csv /dev/full", 3, {"--csv", "/dev/full"}},
           {"all_reduce --device-memory 1K --sizes 1M", 4, {"1.00 KiB"}},
       }) {
    const CommandResult result = launch(3, "bench " + refused.arguments, 30);
    EXPECT_EQ(result.exit_code, refused.exit_code) << refused.arguments << ": " << result.output;
    EXPECT_EQ(result.output.find("ringworld: "), result.output.rfind("ringworld: "))
        << result.output;
    // A disk is found to be full only when it is written to; all else, before anything is measured.
    const bool full = refused.arguments.ends_with("/dev/full");
    EXPECT_EQ(result.output.find("#wrong") != std::string::npos, full) << result.output;
    for (const std::string& fact : refused.facts) {
      EXPECT_NE(result.output.find(fact), std::string::npos) << "no \"" << fact << "\" in:\n"
                                                             << result.output;
    }
  }
}

}  // namespace
}  // namespace ringworld
