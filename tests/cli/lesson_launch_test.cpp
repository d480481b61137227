// ringworld lesson as a user types it: every number of the lesson, on threads and on processes, and
// what is refused.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/xml.h"

namespace ringworld {
namespace {

using Json = nlohmann::json;

constexpr const char* every_name[] = {
    "data-parallel", "ring", "tensor-parallel", "pipeline", "memory", "mixed-precision", "3d",
    "checkpointing", "1f1b", "accumulation",    "cost",     "offload"};

// The whole lesson of one process, worked out once for all tests.
const Json& part(const std::string& name) {
  static const Json all = parsed(run_alone("lesson --json -", 120));
  return all.at("parts").at(name);
}

// As the lesson prints it: with so many decimals.
std::string printed(const Json& value, int decimals) {
  std::ostringstream text;
  text.setf(std::ios::fixed);
  text.precision(decimals);
  text << value.get<double>();
  return text.str();
}

// --- Run on ranks --------------------------------------------------------------------------------

// Inputs are such that all sums are exact: the same on every number of ranks is the same bits.
void expect_data_parallel(const Json& lesson) {
  ASSERT_EQ(lesson["rows"].size(), 4u);
  EXPECT_GT(lesson["loss"], 0);
  int ranks = 1;
  for (const Json& row : lesson["rows"]) {
    EXPECT_EQ(row["ranks"], ranks);
    EXPECT_EQ(row["loss"], lesson["loss"]) << row;
    EXPECT_EQ(row["loss_error"], 0) << row;
    EXPECT_EQ(row["gradient_error"], 0) << row;
    EXPECT_EQ(row["gradient_norm"], lesson["gradient_norm"]) << row;
    EXPECT_EQ(row["bytes_sent_by_rank_0"] == 0, ranks == 1) << row;
    ranks *= 2;
  }
}

// By columns: zero or machine epsilon. By rows: two sums of the same n terms in different orders
// differ by at most 2 n u times the sum of the terms' magnitudes (Higham, Accuracy and Stability of
// Numerical Algorithms, 2002, section 4.2; u is half an epsilon). That sum is at most the product
// of the norms, here about sqrt(n), and the largest output is above 1.
void expect_tensor_parallel(const Json& lesson) {
  constexpr double epsilon = std::numeric_limits<float>::epsilon();
  constexpr double n = 8192;
  ASSERT_EQ(lesson["rows"].size(), 4u);
  EXPECT_EQ(lesson["machine_epsilon"], epsilon);
  int ranks = 1;
  for (const Json& row : lesson["rows"]) {
    EXPECT_EQ(row["ranks"], ranks);
    EXPECT_LE(row["column_error"], epsilon) << row;
    EXPECT_LE(row["row_error"], n * epsilon * std::sqrt(n)) << row;
    ranks *= 2;
  }
  EXPECT_EQ(lesson["rows"][0]["row_error"], 0);
}

void expect_ring(const Json& lesson) {
  const std::int64_t bytes = lesson["bytes"];
  ASSERT_EQ(lesson["rows"].size(), 4u);
  std::int64_t n = 1;
  for (const Json& row : lesson["rows"]) {
    EXPECT_EQ(row["ranks"], n);
    EXPECT_EQ(row["bytes_measured"], 2 * bytes * (n - 1) / n) << row;
    EXPECT_EQ(row["bytes_by_formula"], row["bytes_measured"]) << row;
    EXPECT_EQ(row["bytes_of_7b_gradients"], 2 * 14'000'000'000 * (n - 1) / n) << row;
    n *= 2;
  }
}

void expect_accumulation(const Json& lesson) {
  ASSERT_EQ(lesson["rows"].size(), 4u);
  EXPECT_EQ(lesson["ranks"], 4);
  std::int64_t k = 1;
  for (const Json& row : lesson["rows"]) {
    EXPECT_EQ(row["micro_batches"], k);
    EXPECT_EQ(row["all_reduces_each"], k) << row;
    EXPECT_EQ(row["all_reduces_accumulated"], 1) << row;
    EXPECT_EQ(row["bytes_each"], k * row["bytes_accumulated"].get<std::int64_t>()) << row;
    EXPECT_EQ(row["gradient_error"], 0) << row;
    k *= 2;
  }
}

TEST(Lesson, RunsOnThreads) {
  expect_data_parallel(part("data-parallel"));
  expect_tensor_parallel(part("tensor-parallel"));
  expect_ring(part("ring"));
  expect_accumulation(part("accumulation"));
  for (const Json& row : part("data-parallel")["rows"]) {
    EXPECT_EQ(row["run_as"], "threads");
  }
}

TEST(Lesson, RunsOnProcesses) {
  const Json all = parsed(launch(4, "lesson --json -", 120))["parts"];
  expect_data_parallel(all["data-parallel"]);
  expect_tensor_parallel(all["tensor-parallel"]);
  expect_ring(all["ring"]);
  expect_accumulation(all["accumulation"]);
  for (const char* name : {"data-parallel", "tensor-parallel", "ring"}) {
    for (const Json& row : all[name]["rows"]) {
      EXPECT_EQ(row["run_as"], row["ranks"] <= 4 ? "processes" : "threads") << row;
    }
  }
  EXPECT_EQ(all["accumulation"]["run_as"], "processes");
  // The numbers are those of one process.
  EXPECT_EQ(all["data-parallel"]["loss"], part("data-parallel")["loss"]);
  EXPECT_EQ(all["pipeline"], part("pipeline"));
  EXPECT_EQ(all.size(), std::size(every_name));
}

TEST(Lesson, ThreeProcessesAndEight) {
  expect_data_parallel(
      parsed(launch(3, "lesson --part data-parallel --json -"))["parts"]["data-parallel"]);
  const Json eight = parsed(launch(8, "lesson --part data-parallel --json -"))["parts"];
  expect_data_parallel(eight["data-parallel"]);
  EXPECT_EQ(eight["data-parallel"]["rows"][3]["run_as"], "processes");
}

// --- The planner's and the schedules' numbers ----------------------------------------------------

TEST(Lesson, PipelineTable) {
  struct Row {
    int micro_batches;
    int total;
    const char* bubble;
  };
  const Row table[] = {{1, 64, "75.0"},  {2, 80, "60.0"},   {4, 112, "42.9"},
                       {8, 176, "27.3"}, {16, 304, "15.8"}, {32, 560, "8.6"}};
  const Json& rows = part("pipeline")["rows"];
  ASSERT_EQ(rows.size(), std::size(table));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double m = table[i].micro_batches;
    EXPECT_EQ(rows[i]["micro_batches"], table[i].micro_batches);
    EXPECT_EQ(rows[i]["total_time"], table[i].total);
    EXPECT_EQ(printed(100 * rows[i]["bubble"].get<double>(), 1), table[i].bubble);
    EXPECT_DOUBLE_EQ(rows[i]["bubble"], 3 / (m + 3));
    EXPECT_DOUBLE_EQ(rows[i]["bubble"], 1 - 2 * m * 32 / (table[i].total * 4));
    EXPECT_DOUBLE_EQ(rows[i]["bubble_over_ideal"], 3 / m);
  }
}

TEST(Lesson, MemoryTable) {
  struct Row {
    int billions;
    const char* sharding;
    int gpus;
    const char* gigabytes;
    bool fits;
  };
  const Row table[] = {{7, "none", 1, "91.0", false},     {7, "fsdp", 8, "17.5", true},
                       {70, "none", 1, "910.0", false},   {70, "fsdp", 8, "175.0", false},
                       {70, "fsdp", 16, "122.5", false},  {405, "fsdp", 64, "480.9", false},
                       {405, "fsdp", 128, "443.0", false}};
  const Json& memory = part("memory");
  const auto row_of = [&](int billions, const char* sharding, int gpus) {
    for (const Json& row : memory["rows"]) {
      if (row["billions"] == billions && row["sharding"] == sharding && row["gpus"] == gpus) {
        return row;
      }
    }
    ADD_FAILURE() << billions << "B " << sharding << " on " << gpus << " is missing";
    return Json();
  };
  for (const Row& expected : table) {
    const Json row = row_of(expected.billions, expected.sharding, expected.gpus);
    EXPECT_EQ(printed(row["gigabytes"], 1), expected.gigabytes) << row;
    EXPECT_EQ(row["fits"], expected.fits) << row;
  }
  EXPECT_EQ(printed(memory["with_shape"]["activations_gigabytes"], 2), "17.18");
  EXPECT_EQ(printed(memory["with_shape"]["total_gigabytes"], 2), "101.18");
  constexpr const char* states = "gigabytes_without_activations";
  EXPECT_EQ(printed(row_of(70, "none", 1)[states], 1), "840.0");
  EXPECT_EQ(printed(row_of(70, "fsdp", 8)[states], 1), "105.0");
  EXPECT_EQ(printed(row_of(70, "fsdp", 16)[states], 1), "52.5");
  EXPECT_EQ(printed(memory["405b_without_activations_gigabytes"], 1), "4860.0");
  EXPECT_EQ(memory["405b_smallest_gpus"], 61);
}

TEST(Lesson, MixedPrecisionTable) {
  const int table[][3] = {{7, 112, 84}, {13, 208, 156}, {70, 1120, 840}, {405, 6480, 4860}};
  const Json& lesson = part("mixed-precision");
  EXPECT_EQ(printed(lesson["bytes_per_parameter"]["fp32"], 6), "16.000000");
  EXPECT_EQ(printed(lesson["bytes_per_parameter"]["fp16_with_master"], 6), "16.000000");
  EXPECT_EQ(printed(lesson["bytes_per_parameter"]["mixed_bf16"], 6), "12.000000");
  ASSERT_EQ(lesson["rows"].size(), std::size(table));
  for (std::size_t i = 0; i < std::size(table); ++i) {
    const Json& row = lesson["rows"][i];
    EXPECT_EQ(row["billions"], table[i][0]);
    EXPECT_DOUBLE_EQ(row["fp32_gigabytes"], table[i][1]);
    EXPECT_DOUBLE_EQ(row["fp16_gigabytes"], table[i][1]);
    EXPECT_DOUBLE_EQ(row["bf16_gigabytes"], table[i][2]);
    EXPECT_EQ(printed(100 * row["saving"].get<double>(), 1), "25.0");
  }
}

TEST(Lesson, ThreeAxes) {
  const Json& lesson = part("3d");
  EXPECT_EQ(lesson["tensor"], 8);
  EXPECT_EQ(lesson["pipeline"], 16);
  EXPECT_EQ(lesson["data"], 128);
  EXPECT_EQ(lesson["gpus"], 16'384);
  EXPECT_EQ(lesson["refusal"], "");
}

// --- The exercises -------------------------------------------------------------------------------

TEST(Lesson, Checkpointing) {
  const Json& rows = part("checkpointing")["rows"];
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(rows[0]["every"], 0);
  EXPECT_EQ(printed(rows[0]["lesson_gigabytes"], 2), "17.18");
  EXPECT_EQ(rows[0]["compute_added"], 0);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_GT(rows[i]["saved"], 0) << rows[i];
    // One more forward is a third at most; nothing but the ends is spared.
    EXPECT_LE(rows[i]["compute_added"], 1.0 / 3) << rows[i];
    EXPECT_GT(rows[i]["compute_added"], 0.3) << rows[i];
    EXPECT_DOUBLE_EQ(rows[i]["lesson_compute_added"], 1.0 / 3);
  }
  // 32 inputs of a quarter layer and one whole layer, of 32.
  EXPECT_DOUBLE_EQ(rows[1]["lesson_saved"], 1 - 9.0 / 32);
  EXPECT_LT(rows[2]["activations_gigabytes"], rows[1]["activations_gigabytes"]);
  EXPECT_LT(rows[2]["activations_gigabytes"], rows[3]["activations_gigabytes"]);
}

TEST(Lesson, OneForwardOneBackward) {
  const Json& rows = part("1f1b")["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["live_micro_batches"], Json::parse("[8, 8, 8, 8]"));
  EXPECT_EQ(rows[1]["live_micro_batches"], Json::parse("[4, 3, 2, 1]"));
  EXPECT_EQ(rows[0]["bubble"], rows[1]["bubble"]);
  EXPECT_EQ(rows[1]["total_time"], 176);
}

TEST(Lesson, Cost) {
  const Json& rows = part("cost")["rows"];
  ASSERT_EQ(rows.size(), 7u);
  const auto row_is = [&](std::size_t i, const char* model, double price, const char* hours,
                          const char* millions) {
    EXPECT_EQ(rows[i]["model"], model);
    EXPECT_EQ(rows[i]["dollars_per_hour"], price);
    EXPECT_EQ(printed(rows[i]["gpu_hours"].get<double>() / 1e6, 3), hours);
    EXPECT_EQ(printed(rows[i]["dollars"].get<double>() / 1e6, 3), millions);
  };
  // 6 x 405,853,388,800 x 15.6e12 operations at 40 % of 312 and 989.5 TFLOP/s.
  row_is(0, "llama-3-405b", 2.00, "84.553", "169.106");
  row_is(1, "llama-3-405b", 3.50, "26.660", "93.311");
  row_is(3, "llama-3-405b", 3.50, "30.840", "107.940");
  row_is(6, "deepseek-v3", 2.00, "2.788", "5.576");
  EXPECT_EQ(rows[4]["dollars_per_hour"], 2.00);
  EXPECT_EQ(rows[5]["dollars_per_hour"], 3.50);
  // Ours for Llama's own layout is what ringworld plan cost says.
  const Json planned = parsed(run_alone(
      "plan cost --tokens 15.6T --model llama-3-405b --gpus 16384 --tensor 8 --pipeline 16 "
      "--chunks 7 --schedule interleaved-1f1b --sequence-parallel --sharding zero1 --micro-batch 1 "
      "--global-batch 2048 "
      "--sequence-length 8192 --gpu H100-80GB --price 3.5 --json -"));
  EXPECT_EQ(rows[2]["dollars"], planned["cost"]["expected"]["dollars"]);
}

TEST(Lesson, Offload) {
  const Json& lesson = part("offload");
  const auto smallest = [&](bool offloaded) {
    std::int64_t gpus = 0;
    for (const Json& row : lesson["rows"]) {
      if (row["offloaded"] == offloaded && row["fits"] == true) {
        gpus = gpus == 0 ? row["gpus"].get<std::int64_t>()
                         : std::min(gpus, row["gpus"].get<std::int64_t>());
      }
      EXPECT_LE(row["host_gigabytes"], 512) << row;
      EXPECT_LE(row["file_gigabytes"], 2000) << row;
    }
    return gpus;
  };
  EXPECT_EQ(smallest(false), 16);
  EXPECT_EQ(smallest(true), 4);
  // 50 % and 30 % more are the same seconds of steps that take 0.6 of each other.
  EXPECT_DOUBLE_EQ(lesson["tokens_for_50_percent"],
                   0.6 * lesson["tokens_for_30_percent"].get<double>());
}

// --- What is printed and refused -----------------------------------------------------------------

TEST(Lesson, TextFitsAHundredColumnsAndPrintsOnce) {
  const CommandResult result = launch(2, "lesson", 120);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "The lesson, on "), 1u);
  for (const char* name : every_name) {
    EXPECT_EQ(occurrences(result.output, std::string("(") + name + ") ==="), 1u) << name;
  }
  // One line for each part.
  EXPECT_EQ(occurrences(result.output, "\nIn practice: "), std::size(every_name));
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Lesson, NumbersStandInTheText) {
  expect_facts(run_alone("lesson --part memory"), 0,
               {"91.0", "17.5", "910.0", "175.0", "122.5", "480.9", "443.0", "17.18 GB",
                "101.18 GB", "4860 GB", "61 GPUs"});
  expect_facts(run_alone("lesson --part pipeline"), 0,
               {"75.0 %", "60.0 %", "42.9 %", "27.3 %", "15.8 %", "8.6 %"});
  expect_facts(run_alone("lesson --part 3d"), 0, {"TP 8 x PP 16 x DP 128 = 16384 GPUs"});
  expect_facts(run_alone("lesson --part offload"), 0, {"4 GPUs instead of 16", "30 to 50 %"});
  expect_facts(run_alone("lesson --part cost"), 0, {"107.940", "5.576"});
  expect_facts(run_alone("lesson --help"), 0, {"--part", "tensor-parallel", "1f1b", "Exercise 5"});
}

// The prompt for assistants: its commands run, and what it gives to check oneself by is what the
// lesson says.
TEST(Lesson, PromptHolds) {
  std::ifstream file(RINGWORLD_SOURCE_DIR "/outputs/prompt-distributed-training-planner.md");
  std::ostringstream text;
  text << file.rdbuf();
  const std::string prompt = text.str();
  int commands = 0;
  std::istringstream lines(prompt);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("ringworld ")) {
      const CommandResult result = run_alone(line.substr(line.find(' ') + 1), 20);
      EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.output;
      ++commands;
    }
  }
  EXPECT_GT(commands, 0);
  const auto says = [&](const std::string& fact) {
    EXPECT_NE(prompt.find(fact), std::string::npos) << fact;
  };
  const Json& memory = part("memory");
  for (const std::size_t row : {1, 2, 4, 7}) {
    says(printed(memory["rows"][row]["gigabytes"], 1));
  }
  says(printed(memory["with_shape"]["activations_gigabytes"], 2) + " GB");
  says(printed(memory["with_shape"]["total_gigabytes"], 2) + " GB");
  says(printed(memory["405b_without_activations_gigabytes"], 0) + " GB");
  says(memory["405b_smallest_gpus"].dump() + " GPUs");
  const Json planned =
      parsed(run_alone("plan memory --model llama-3-8b --gpus 8 --tensor 2 --sharding zero1 "
                       "--sequence-length 8192 --json -"));
  says("has " + printed(planned["device_bytes"].get<double>() / 1e9, 1) + " GB");
  for (const std::size_t row : {0, 3, 5}) {
    says(printed(100 * part("pipeline")["rows"][row]["bubble"].get<double>(), 1) + " %");
  }
  says(part("3d")["gpus"].dump());
  for (const std::size_t row : {3, 6}) {
    says("$" + printed(part("cost")["rows"][row]["dollars"].get<double>() / 1e6, 3) + " M");
  }
}

TEST(Lesson, OnePartAlone) {
  for (const char* name : {"ring", "3d"}) {
    const Json parts = parsed(run_alone(std::string("lesson --json - --part ") + name))["parts"];
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(parts[name], part(name));
  }
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/lesson.json";
  expect_facts(run_alone("lesson --part 1f1b --json " + path), 0, {"4, 3, 2, 1"});
  EXPECT_EQ(Json::parse(std::ifstream(path))["schema"], "ringworld.lesson");
}

TEST(Lesson, BadInputIsRefusedByName) {
  struct Row {
    const char* arguments;
    int exit_code;
    std::initializer_list<std::string_view> facts;
  };
  const Row table[] = {
      {"--part pipelines", 2, {"--part", "'pipelines'", "did you mean pipeline?"}},
      {"--part memory,ring", 2, {"--part", "'memory,ring'"}},
      {"--part", 2, {"--part"}},
      {"--prat memory", 2, {"--prat", "did you mean --part?"}},
      {"memory", 2, {"'memory'", "unexpected"}},
      {"--json /no/such/place.json", 3, {"--json", "/no/such/place.json"}},
  };
  for (const Row& row : table) {
    for (const CommandResult& result : {run_alone(std::string("lesson ") + row.arguments),
                                        launch(2, std::string("lesson ") + row.arguments)}) {
      expect_facts(result, row.exit_code, row.facts);
      EXPECT_EQ(occurrences(result.output, "ringworld: "), 1u) << result.output;
      EXPECT_EQ(result.output.find("==="), std::string::npos) << result.output;
    }
  }
}

TEST(Lesson, RanksWithDifferentPartsAreRefused) {
  const std::string rank = std::string(" -n 1 ") + RINGWORLD_PROGRAM + " lesson --part ";
  const CommandResult run =
      run_command(std::string(RINGWORLD_LAUNCH) + rank + "memory :" + rank + "ring", 30);
  expect_facts(run, 2, {"different options"});
}

}  // namespace
}  // namespace ringworld
