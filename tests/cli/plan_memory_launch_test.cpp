// ringworld plan memory as a user types it: text, JSON, chart, verification, and what is refused.
#include <algorithm>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/xml.h"

namespace ringworld {
namespace {

CommandResult plan_memory(const std::string& arguments) {
  return run_alone("plan memory " + arguments, 20);
}

nlohmann::json plan_memory_json(const std::string& arguments) {
  return parsed(plan_memory(arguments + " --json -"));
}

// The source that is printed beside a value.
std::string source_of(const nlohmann::json& json, const std::string& what) {
  for (const auto& stated : json["stated"]) {
    if (stated["what"] == what) {
      return stated["source"];
    }
  }
  return "not stated";
}

TEST(PlanMemory, SaysWhatAGpuHoldsAndIfItFits) {
  expect_facts(plan_memory("--model llama-3-8b --gpus 8 --sharding fsdp --gpu H100-80GB"), 0,
               {"llama-3-8b: 8,030,261,248 parameters (8.03B)", "DP 8, zero3", "moments",
                "gathered units", "It fits H100-80GB", "Fewest GPUs"});
  expect_facts(plan_memory("--model llama-3-70b --gpus 8 --gpu H100-80GB"), 0,
               {"It does not fit H100-80GB", "Would fit on as many GPUs", "--sharding zero3"});
}

TEST(PlanMemory, ASizeAloneGivesAShapeThatIsPrinted) {
  expect_facts(plan_memory("--params 70B"), 0,
               {"70.0B model", "layers, width", "a plausible shape for the size"});
}

TEST(PlanMemory, NoLineIsWiderThanAHundredColumns) {
  for (const char* arguments :
       {"--help", "--model deepseek-v3 --gpus 2048 --pipeline 16 --expert 64 --gpu H100-80GB",
        "--model gpt2 --convention deepspeed --gpus 4 --gpu A100-80GB",
        "--model gpt2 --convention megatron --gpus 4 --tensor 2 --sequence-parallel",
        "--params 70B --convention lesson --gpus 16 --gpu A100-80GB",
        "--model gpt2 --accounting ringworld", "--model gpt2-tiny --verify --offload optimizer"}) {
    std::istringstream lines(plan_memory(arguments).output);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100u) << arguments << ": " << line;
    }
  }
}

TEST(PlanMemory, EveryStageAndTheFullest) {
  const nlohmann::json json =
      plan_memory_json("--model llama-2-7b --layers 8 --pipeline 4 --stage-layers 1,2,2,3");
  EXPECT_EQ(json["plan"]["fullest"], 3);
  std::int64_t parameters = 0;
  for (const auto& stage : json["plan"]["stages"]) {
    parameters += stage["parameters"].get<std::int64_t>();
  }
  EXPECT_EQ(parameters, json["parameters"]["total"]);
  EXPECT_EQ(json["device_bytes"], json["plan"]["stages"][3]["device"]["total"]);
}

// What the option says, whatever the model's file says; and the source of each.
TEST(PlanMemory, PrecisionIsTheOneAskedFor) {
  TemporaryDirectory directory;
  const std::string path = directory.write(
      "config.json", R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
    "vocab_size": 100, "max_position_embeddings": 256, "torch_dtype": "float16"})");
  const std::string model = "--model-config " + path;
  const nlohmann::json file = plan_memory_json(model);
  const nlohmann::json bf16 = plan_memory_json(model + " --dtype bf16");
  const nlohmann::json fp32 = plan_memory_json(model + " --dtype fp32");
  const auto weights = [](const nlohmann::json& json) {
    return json["plan"]["stages"][0]["device"]["weights"].get<std::int64_t>();
  };
  EXPECT_EQ(weights(fp32), 2 * weights(bf16));
  EXPECT_EQ(weights(file), weights(bf16));
  EXPECT_NE(source_of(file, "precision").find("the model's file"), std::string::npos);
  EXPECT_NE(source_of(fp32, "precision").find("--dtype; the model's file says f16"),
            std::string::npos);
  EXPECT_NE(source_of(file, "layers").find("config.json, num_hidden_layers"), std::string::npos);
}

TEST(PlanMemory, PaddedVocabularyIsSaid) {
  const nlohmann::json json = plan_memory_json("--model gpt2 --pad-vocabulary 128");
  EXPECT_EQ(json["parameters"]["total"], 124'439'808);
  EXPECT_EQ(json["plan"]["stages"][0]["parameters"], 124'475'904);
  EXPECT_NE(source_of(json, "vocabulary rows").find("50257 in multiples of 128"),
            std::string::npos);
}

TEST(PlanMemory, OtherCalculators) {
  expect_facts(plan_memory("--params 6805M --largest-layer 131M --gpus 4 --convention deepspeed"),
               0, {"0.49", "3.66", "29.01", "171.12", "zero1", "Where ours differs"});
  expect_facts(
      plan_memory("--params 70B --gpus 16 --sharding fsdp --convention lesson --gpu A100-80GB"), 0,
      {"122.50", "does not fit A100-80GB of 80.00 GB", "Where ours differs"});
  expect_facts(
      plan_memory("--params 7B --width 4096 --layers 32 --sequence-length 2048 --micro-batch 8 "
                  "--convention lesson"),
      0, {"17.18", "101.18"});
}

TEST(PlanMemory, ChartAndJsonAreFiles) {
  TemporaryDirectory directory;
  const std::string svg = directory.path("memory.svg");
  const std::string json = directory.path("memory.json");
  expect_facts(
      plan_memory("--model gpt2 --sharding zero3 --gpu T4-16GB --svg " + svg + " --json " + json),
      0, {"It fits T4-16GB"});
  const std::string page = content_of(svg);
  EXPECT_EQ(malformed(page), "");
  EXPECT_NE(page.find("T4-16GB"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(content_of(json))["gpu"]["fits"], true);
  expect_facts(plan_memory("--model gpt2 --svg /does/not/exist.svg"), 3,
               {"--svg", "/does/not/exist.svg"});
}

// Equal to the dry run and to two real steps, on one rank and on several.
TEST(PlanMemory, Verify) {
  const CommandResult alone = plan_memory("--model gpt2-tiny --dtype f32 --verify");
  expect_facts(alone, 0,
               {"Plan against dry run of rank 0 of 1: it holds",
                "Plan against two real steps of 1 rank: it holds"});
  EXPECT_EQ(alone.output.find("WRONG"), std::string::npos) << alone.output;
  for (const char* sharding : {"none", "zero1", "zero2", "zero3"}) {
    const CommandResult result =
        launch(3, std::string("plan memory --model gpt2-tiny --gpus 3 --verify --global-batch 6 "
                              "--sharding ") +
                      sharding);
    expect_facts(result, 0, {"Plan against two real steps of 3 ranks: it holds"});
    EXPECT_EQ(result.output.find(" %"), std::string::npos) << result.output;
  }
  const CommandResult mesh =
      launch(4,
             "plan memory --model llama-tiny --gpus 4 --tensor 2 --sequence-parallel --pipeline 2 "
             "--schedule zb-h1 --global-batch 8 --verify");
  expect_facts(
      mesh, 0,
      {"dry run of rank 0 of 4, stage 0: it holds", "dry run of rank 2 of 4, stage 1: it holds",
       "Plan against two real steps of 4 ranks, on rank 0: it holds"});
  EXPECT_EQ(mesh.output.find(" %"), std::string::npos) << mesh.output;
  expect_facts(plan_memory("--model gpt2-xl --gpus 64 --sharding fsdp --verify"), 0,
               {"dry run of rank 0 of 64: it holds", "mpiexec -n 64 ringworld train"});
}

TEST(PlanMemory, BadInputIsRefusedByName) {
  struct Row {
    const char* arguments;
    int exit_code;
    std::initializer_list<std::string_view> facts;
  };
  const Row table[] = {
      {"--params 7X", 2, {"--params", "'7X'"}},
      {"--params -7B", 2, {"--params", "'-7B'"}},
      {"--params 0", 2, {"--params", "'0'"}},
      {"--params 1e30", 2, {"--params", "'1e30'"}},
      {"--model lama", 2, {"'lama'", "unknown model"}},
      {"--model llama3", 2, {"'llama3'", "llama-3-8b"}},
      {"--model gpt2 --gpu H100", 2, {"'H100'", "H100-80GB"}},
      {"--model gpt2 --gpus 8 --data 3", 2, {"3", "8 GPUs"}},
      {"--model gpt2 --gpus 9 --tensor 2", 2, {"--gpus", "'9'", "8 or 10"}},
      {"--model gpt2 --tensor 5", 2, {"tensor 5", "12 heads"}},
      {"--model gpt2 --sharding zero4", 2, {"--sharding", "'zero4'"}},
      {"--model gpt2 --schedule 2f2b", 2, {"--schedule", "'2f2b'"}},
      {"--model gpt2 --dtype fp8", 2, {"--dtype", "'fp8'"}},
      {"--model gpt2 --layers 0", 2, {"--layers", "'0'"}},
      {"--model gpt2 --micro-batch -1", 2, {"--micro-batch", "'-1'"}},
      {"--model gpt2 --convention other", 2, {"--convention", "'other'"}},
      {"--model gpt2 --convention lesson --verify", 2, {"--verify"}},
      {"--model gpt2 --largest-layer 3M", 2, {"--largest-layer", "deepspeed"}},
      {"--model gpt2 --tesnor 2", 2, {"--tesnor", "--tensor"}},
      {"--model mixtral-8x7b --verify", 2, {"mixtral-8x7b", "GPT-2", "Llama"}},
      {"--model llama-3-8b --gpus 8 --context-parallel 2 --verify", 2, {"context"}},
      {"--model-config /does/not/exist", 3, {"/does/not/exist"}},
      {"", 2, {"--model", "--params"}},
  };
  for (const Row& row : table) {
    expect_facts(plan_memory(row.arguments), row.exit_code, row.facts);
  }
  expect_facts(run_alone("plan"), 2, {"plan memory"});
  expect_facts(run_alone("plan memry"), 2, {"'memry'", "did you mean memory"});
  expect_facts(run_alone("plan --help"), 0, {"plan memory"});
}

}  // namespace
}  // namespace ringworld
