// ringworld plan step, cost, search and validate as a user types them: text, JSON, charts, and what
// is refused.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/xml.h"

namespace ringworld {
namespace {

const std::string llama_405b =
    " --model llama-3-405b --gpus 16384 --tensor 8 --pipeline 16 --chunks 7 --sequence-parallel "
    "--sharding zero1 --global-batch 2048 --sequence-length 8192 --gpu H100-80GB";
const std::string deepseek_v3 =
    " --model deepseek-v3 --gpus 2048 --pipeline 16 --expert 64 --schedule zb-h1 --sharding zero1 "
    "--global-batch 15360 --sequence-length 4096 --gpu H800-80GB --fp8 "
    "--overlap data,expert,pipeline";
const std::string llama_8b =
    " --model llama-3-8b --gpus 8 --sharding fsdp --global-batch 64 --gpu H100-80GB";

CommandResult plan_time(const std::string& arguments) {
  return run_alone("plan " + arguments, 30);
}

nlohmann::json plan_time_json(const std::string& arguments) {
  return parsed(plan_time(arguments + " --json -"));
}

TEST(PlanTime, NoLineIsWiderThanAHundredColumns) {
  for (const std::string& arguments :
       {"step" + llama_405b, "step" + deepseek_v3, "cost --tokens 15.6T" + llama_405b,
        std::string(
            "search --model llama-3-405b --gpus 8..256 --gpu H100-80GB --explain --tokens 1T"),
        std::string("search --model mixtral-8x7b --gpus 64 --gpu A100-80GB"),
        std::string("validate --all"), std::string("step --help"), std::string("cost --help"),
        std::string("search --help"), std::string("validate --help")}) {
    const CommandResult result = plan_time(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments;
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100u) << arguments << ":\n" << line;
    }
  }
}

TEST(PlanStep, SaysWhereTheTimeGoes) {
  expect_facts(plan_time("step" + llama_405b), 0,
               {"Step of llama-3-405b (406B parameters) on 16384 H100-80GB", "--tensor", "bubble",
                "reduce_scatter", "tokens/s", "MFU", "HFU", "megatron", "sustained",
                "of matmul_share", "fitted: "});
}

TEST(PlanStep, ItsPartsAddUp) {
  const nlohmann::json json = plan_time_json("step" + llama_405b);
  double sum = 0;
  for (const auto& part : json["parts"]) {
    sum += part["exposed_s"].get<double>();
  }
  EXPECT_NEAR(sum, json["seconds"].get<double>(), 1e-9);
  EXPECT_NEAR(json["tokens_per_second"].get<double>() * json["seconds"].get<double>(),
              2048.0 * 8192, 1);
  // Dubey et al., table 4, second row: 41 %.
  EXPECT_NEAR(json["mfu"].get<double>(), 0.41, 0.02);
  for (const auto& stated : json["constants"]) {
    EXPECT_FALSE(stated["source"].get<std::string>().empty()) << stated;
  }
}

TEST(PlanStep, RecomputationIsInHfuAndNotInMfu) {
  const nlohmann::json with = plan_time_json("step --recompute full" + llama_8b);
  EXPECT_GT(with["hfu"].get<double>(), 1.2 * with["mfu"].get<double>());
  const nlohmann::json without = plan_time_json("step" + llama_8b);
  EXPECT_EQ(without["hfu"], without["mfu"]);
}

TEST(PlanStep, SaysWhenItDoesNotFit) {
  expect_facts(plan_time("step --model llama-3-70b --gpus 8 --gpu H100-80GB"), 0,
               {"of 80.0 GB: it does not fit"});
}

TEST(PlanStep, TheHardwareFileDecides) {
  TemporaryDirectory directory;
  const std::string path = directory.path("ours.json");
  std::ofstream(path) << R"({"machines": [{"name": "H100-80GB", "between": 6e9,
                                           "source": "one card of 400 Gb/s"}]})";
  const std::string layout =
      " --model llama-3-8b --gpus 64 --sharding fsdp --gpu H100-80GB --hardware " + path;
  const nlohmann::json slow = plan_time_json("step" + layout);
  const nlohmann::json fast =
      plan_time_json("step --model llama-3-8b --gpus 64 --sharding fsdp --gpu H100-80GB");
  EXPECT_GT(slow["seconds"].get<double>(), fast["seconds"].get<double>());
  bool said = false;
  for (const auto& constant : slow["constants"]) {
    said = said || (constant["what"] == "between" && constant["value"] == "6 GB/s" &&
                    constant["source"] == path + ": one card of 400 Gb/s");
  }
  EXPECT_TRUE(said) << slow["constants"];
  // plan memory reads the same file.
  std::ofstream(path) << R"({"machines": [{"name": "X1-96GB", "like": "H100-80GB",
                                           "memory": "96GB", "source": "its datasheet"}]})";
  expect_facts(plan_time("memory --model llama-3-8b --gpus 8 --gpu X1-96GB --hardware " + path), 0,
               {"X1-96GB", "its datasheet"});
}

TEST(PlanCost, TwoTrainingsTakeWhatWasPublished) {
  // Model card of Llama 3.1: 30.84M hours; DeepSeek-V3, table 1: 2,664K hours, $5.328M.
  const nlohmann::json llama = plan_time_json("cost --tokens 15.6T" + llama_405b);
  EXPECT_NEAR(llama["cost"]["expected"]["gpu_hours"].get<double>() / 30.84e6, 1, 0.1);
  EXPECT_LT(llama["cost"]["high"]["days"], llama["cost"]["expected"]["days"]);
  EXPECT_LT(llama["cost"]["expected"]["days"], llama["cost"]["low"]["days"]);
  const nlohmann::json deepseek = plan_time_json("cost --tokens 14.8T" + deepseek_v3);
  EXPECT_NEAR(deepseek["cost"]["expected"]["dollars"].get<double>() / 5.328e6, 1, 0.2);
}

TEST(PlanCost, SaysWhenItDoesNotFit) {
  expect_facts(plan_time("cost --tokens 1B --model llama-3-70b --gpus 8 --gpu H100-80GB"), 0,
               {"It does not fit: ", "of 80.0 GB"});
  EXPECT_TRUE(plan_time_json("cost --tokens 1B" + llama_8b)["fits"]);
}

TEST(PlanCost, WithoutAPriceThereAreNoDollars) {
  const std::string v100 =
      "cost --tokens 1B --model gpt2 --gpus 8 --gpu V100-32GB --dtype f16 --global-batch 64";
  expect_facts(plan_time(v100), 0, {"no dollars without one", "unknown"});
  EXPECT_TRUE(plan_time_json(v100)["cost"]["expected"]["dollars"].is_null());
  EXPECT_GT(plan_time_json(v100 + " --price 2")["cost"]["expected"]["dollars"], 0);
}

TEST(PlanSearch, RanksWhatFitsAndCountsWhatDoesNot) {
  expect_facts(plan_time("search --model llama-3-70b --gpus 64 --gpu H100-80GB --explain"), 0,
               {"layouts weighed in", "more than the GPU's memory", "nearest: ", "mpiexec -n ",
                "ringworld train", "llama-tiny"});
  const nlohmann::json json =
      plan_time_json("search --model llama-3-70b --gpus 64 --gpu H100-80GB --tokens 1T");
  const auto& of_gpus = json["searched"][0];
  double last = 0;
  for (const auto& found : of_gpus["best"]) {
    EXPECT_GE(found["step_seconds"].get<double>(), last);
    EXPECT_LE(found["memory_bytes"].get<double>(), 80e9);
    EXPECT_GT(found["dollars"].get<double>(), 0);
    last = found["step_seconds"];
  }
  std::int64_t rejected = 0;
  for (const auto& reason : of_gpus["rejected"]) {
    rejected += reason["count"].get<std::int64_t>();
  }
  EXPECT_EQ(rejected + of_gpus["fitting"].get<std::int64_t>(), json["weighed"]);
}

TEST(PlanSearch, ARangeIsRankedByTimeOrCost) {
  const std::string range = "search --model llama-3-8b --gpus 8..64 --gpu H100-80GB ";
  EXPECT_EQ(plan_time_json(range + "--rank time")["searched"][0]["gpus"], 64);
  const nlohmann::json cost = plan_time_json(range + "--rank cost");
  double last = 0;
  for (const auto& one : cost["searched"]) {
    const double hours = one["best"][0]["gpu_hours"];
    EXPECT_GE(hours, last);
    last = hours;
  }
}

TEST(PlanSearch, WeighsAHundredThousandForTheLargest) {
  const nlohmann::json json = plan_time_json(
      "search --model llama-3-405b --gpus 16384 --gpu H100-80GB --global-batch 2048 "
      "--sequence-length 8192");
  EXPECT_GE(json["weighed"].get<std::int64_t>(), 100'000);
}

// The small command of the best layout, and the number of its ranks.
struct Small {
  int ranks = 0;
  std::string arguments;
};
Small small_command(const std::string& search) {
  std::string output = plan_time("search " + search).output;
  const std::string launcher = "mpiexec -n ";
  const std::string program = " ringworld ";
  const std::size_t at = output.find(launcher);
  const std::size_t end_of_launcher = output.find(program, at);
  if (at == std::string::npos || end_of_launcher == std::string::npos) {
    ADD_FAILURE() << output;
    return {};
  }
  Small small{.ranks = std::stoi(output.substr(at + launcher.size())),
              .arguments = output.substr(end_of_launcher + program.size())};
  for (std::size_t end = 0; (end = small.arguments.find("\\\n")) != std::string::npos;) {
    small.arguments.replace(end, 2, " ");
  }
  small.arguments.erase(small.arguments.find('\n'));
  return small;
}

// The command that it prints is one that runs, with the axes of the layout.
TEST(PlanSearch, TheSmallCommandRuns) {
  struct Row {
    const char* search;
    std::initializer_list<std::string_view> options;
  };
  const Row table[] = {
      {"--model llama-3-8b --gpus 8 --gpu H100-80GB --no-offload", {"--model llama-tiny"}},
      {"--model llama-3-405b --gpus 2048 --gpu H100-80GB --global-batch 512 --sequence-length 8192",
       {"--mesh dp=", "pp=2,tp=2", "--sequence-parallel", "--pipeline-schedule", "llama-tiny"}},
      {"--model gpt3-175b --gpus 64 --gpu A100-80GB --global-batch 512",
       {"--mesh dp=", "--model gpt2"}},
  };
  TemporaryDirectory directory;
  const std::string text = directory.path("text.txt");
  std::ofstream(text) << std::string(20000, 'x') << "\n";
  for (const Row& row : table) {
    auto [ranks, arguments] = small_command(row.search);
    for (const std::string_view option : row.options) {
      EXPECT_NE(arguments.find(option), std::string::npos) << option << " in " << arguments;
    }
    arguments.replace(arguments.find("FILE"), 4, text);
    const CommandResult trained = launch(ranks, arguments + " --steps 2 --progress none", 60);
    EXPECT_EQ(trained.exit_code, 0) << ranks << " ranks: " << arguments << "\n" << trained.output;
  }
}

TEST(PlanSearch, NothingFitsIsAFailure) {
  expect_facts(plan_time("search --model llama-3-405b --gpus 8 --gpu T4-16GB --dtype f16"), 1,
               {"8 GPUs: nothing fits", "more than the GPU's memory"});
}

TEST(PlanValidate, MeetsItsLimits) {
  expect_facts(
      plan_time("validate"), 0,
      {"Megatron-LM, table 1", "within limits", "within rounding", "left out", "they are met"});
  const nlohmann::json json = plan_time_json("validate");
  EXPECT_TRUE(json["passes"]);
  EXPECT_LT(json["mean_left_out_error"].get<double>(), 0.08);
}

// A file that makes a device slower than it is fails the validation.
TEST(PlanValidate, AWrongMachineFails) {
  TemporaryDirectory directory;
  const std::string path = directory.path("wrong.json");
  std::ofstream(path) << R"({"machines": [{"name": "A100-80GB", "sustained": 0.5,
                                           "source": "planted"}]})";
  expect_facts(plan_time("validate --hardware " + path), 1, {"BEYOND LIMITS", "NOT MET"});
}

TEST(PlanTime, DrawsItsCharts) {
  TemporaryDirectory directory;
  for (const std::string& arguments :
       {"step" + llama_405b, "cost --tokens 15.6T" + llama_405b, "cost --tokens 1B" + llama_8b}) {
    const std::string path = directory.path("chart.svg");
    EXPECT_EQ(plan_time(arguments + " --svg " + path).exit_code, 0);
    EXPECT_EQ(malformed(content_of(path)), "") << arguments;
  }
}

TEST(PlanTime, RefusesBadInputWithOneMessage) {
  struct Bad {
    std::string arguments;
    std::vector<std::string> said;
  };
  const Bad cases[] = {
      {"step --model llama-3-8b --gpus 8", {"--gpu: missing", "--gpu H100-80GB"}},
      {"step --model llama-3-8b --gpu H100",
       {"'H100'", "did you mean H100-80GB or H100-96GB or H100-PCIe-80GB?"}},
      {"step --model llama-3-9b --gpu H100-80GB", {"'llama-3-9b'", "did you mean llama-3-8b?"}},
      {"step --params 7Q --gpu H100-80GB", {"--params", "'7Q'"}},
      {"step --params 0 --gpu H100-80GB", {"--params", "'0'"}},
      {"step --params -7B --gpu H100-80GB", {"--params", "'-7B'"}},
      {"step --model llama-3-8b --gpus 8 --data 3 --gpu H100-80GB", {"data 3", "8 GPUs"}},
      {"step --model llama-3-8b --gpus 8 --tensor 3 --gpu H100-80GB",
       {"--gpus", "'8'", "tensor 3"}},
      {"step --model llama-3-8b --gpu V100-32GB", {"bf16", "V100-32GB", "ask for f16"}},
      {"step --model llama-3-8b --gpu A100-80GB --fp8", {"--fp8", "A100-80GB"}},
      {"step --model llama-3-8b --gpu H100-80GB --overlap date", {"'date'", "did you mean data?"}},
      {"step --model llama-3-8b --gpu H100-80GB --overlap none,data", {"--overlap", "'none'"}},
      {"cost --model llama-3-8b --gpu H100-80GB", {"--tokens: missing"}},
      {"cost --model llama-3-8b --gpu H100-80GB --tokens -5", {"--tokens", "'-5'"}},
      {"cost --model llama-3-8b --gpu H100-80GB --tokens 1T --price 0", {"--price", "'0'"}},
      {"search --model llama-3-8b --gpu H100-80GB", {"--gpus: missing"}},
      {"search --model llama-3-8b --gpu H100-80GB --gpus 64..8", {"'64..8'", "ask for 8..64"}},
      {"search --model llama-3-8b --gpu H100-80GB --gpus many", {"--gpus", "'many'"}},
      {"search --model gpt2 --gpu H100-80GB --gpus 8 --sequence-length 2048",
       {"--sequence-length", "'2048'", "1024"}},
      {"stop", {"'stop'", "did you mean step?", "plan validate"}},
      {"", {"what to plan is missing"}}};
  for (const Bad& bad : cases) {
    const CommandResult result = plan_time(bad.arguments);
    EXPECT_EQ(result.exit_code, 2) << bad.arguments << "\n" << result.output;
    EXPECT_EQ(result.output.rfind("ringworld: ", 0), 0u) << result.output;
    for (const std::string& said : bad.said) {
      EXPECT_NE(result.output.find(said), std::string::npos)
          << bad.arguments << ": no \"" << said << "\" in:\n"
          << result.output;
    }
  }
  expect_facts(plan_time("step --model llama-3-8b --gpu H100-80GB --hardware /nowhere.json"), 3,
               {"'/nowhere.json'", "cannot be read"});
}

}  // namespace
}  // namespace ringworld
