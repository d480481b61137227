// ringworld verify as a user starts it: real processes under mpiexec.
#include <set>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

class VerifyLaunch : public testing::TestWithParam<int> {};

TEST_P(VerifyLaunch, DdpEqualsASingleProcess) {
  const int ranks = GetParam();
  const TemporaryDirectory directory;
  const std::string json = directory.path("table.json");
  const CommandResult run =
      launch(ranks, "verify --strategy ddp --accumulation 1 3 " + tiny_model + "--json " + json);
  EXPECT_EQ(run.exit_code, 0) << run.output;

  const auto table = nlohmann::json::parse(std::ifstream(json));
  EXPECT_EQ(table.at("conditions").at("ranks"), ranks);
  EXPECT_EQ(table.at("passed"), true);
  ASSERT_EQ(table.at("rows").size(), 4u);  // f64 and f32, accumulation 1 and 3
  for (const auto& row : table.at("rows")) {
    const bool f64 = row.at("precision") == "f64";
    EXPECT_LE(row.at("largest").at("relative_error"), f64 ? 1e-12 : 1e-5);
    EXPECT_EQ(row.at("steps_compared"), 3);
    // 2 (N - 1) times the gradients' bytes, over all ranks, in each of 3 steps.
    const std::int64_t parameters = table.at("parameters");
    EXPECT_EQ(row.at("bytes_sent"), 3 * 2 * (ranks - 1) * parameters * (f64 ? 8 : 4));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, VerifyLaunch, testing::Values(1, 2, 3, 4, 8),
                         testing::PrintToStringParamName());

const std::string tiny_llama =
    "--layers 2 --heads 4 --kv-heads 2 --width 16 --hidden 20 --vocabulary 256 --context 32 "
    "--accumulation 1 ";

TEST(VerifyLaunch, LlamaEqualsASingleProcess) {
  struct Case {
    int ranks;
    std::string options;
  };
  // With sequence parallelism a rank has a part of every sequence, of uneven lengths too: its
  // rotary positions are those within the sequence. Llama 3.2 1B ties head and embedding.
  for (const Case& c :
       {Case{3, "--model llama-tiny --strategy ddp fsdp"},
        Case{2, "--model llama-tiny --mesh tp=2 --sequence-parallel true --sequence-length 8"},
        Case{2, "--model llama-tiny --mesh tp=2 --sequence-parallel true --sequence-length 7"},
        Case{3, "--model llama-3.2-1b --strategy fsdp"},
        Case{2, "--model llama-3.2-1b --mesh pp=2"}}) {
    const CommandResult run = launch(c.ranks, "verify " + tiny_llama + c.options);
    EXPECT_EQ(run.exit_code, 0) << run.output;
  }
  const CommandResult planted = launch(2, "verify --model llama-tiny " + tiny_llama +
                                              "--plant factor=2,rank=1,tensor="
                                              "model.layers.1.mlp.gate_up_proj.weight");
  EXPECT_EQ(planted.exit_code, 1) << planted.output;
}

std::set<std::string> verified_layouts(int ranks, const std::string& options) {
  const TemporaryDirectory directory;
  const std::string json = directory.path("table.json");
  const CommandResult run =
      launch(ranks,
             "verify --accumulation 1 --precision f64 --steps 2 --micro-batch 2 --heads 8 "
             "--width 16 --vocabulary 19 --context 8 --sequence-length 7 --json " +
                 json + " " + options);
  EXPECT_EQ(run.exit_code, 0) << run.output;
  const auto table = nlohmann::json::parse(std::ifstream(json));
  std::set<std::string> layouts;
  for (const auto& row : table.at("rows")) {
    EXPECT_EQ(row.at("passed"), true) << row;
    EXPECT_LE(row.at("largest").at("relative_error"), 1e-12) << row;
    EXPECT_EQ(row.at("bytes_sent"), row.at("bytes_expected")) << row;
    layouts.insert(row.at("layout"));
  }
  return layouts;
}

// An axis that is no divisor of the vocabulary and of the sequence, either.
TEST(VerifyLaunch, MeshesOfEightRanksEqualASingleProcess) {
  EXPECT_EQ(verified_layouts(8,
                             "--mesh dp=2,pp=2,tp=2 tp=8 --sequence-parallel true "
                             "--strategy fsdp --layers 2"),
            (std::set<std::string>{"dp=2,pp=2,tp=2 sp 1f1b", "dp=1,pp=1,tp=8 sp"}));
  EXPECT_EQ(verified_layouts(8, "--mesh pp=8 --layers 8 --pipeline-schedule 1f1b zb-h2"),
            (std::set<std::string>{"dp=1,pp=8,tp=1 1f1b", "dp=1,pp=8,tp=1 zb-h2"}));
}

TEST(VerifyLaunch, AllMeansEveryMeshAndWhatGoesWithIt) {
  EXPECT_EQ(verified_layouts(2, "--mesh all --layers 4 --accumulation 2"),
            (std::set<std::string>{"dp=2,pp=1,tp=1", "dp=1,pp=1,tp=2", "dp=1,pp=1,tp=2 sp",
                                   "dp=1,pp=2,tp=1 fill-drain", "dp=1,pp=2,tp=1 1f1b",
                                   "dp=1,pp=2,tp=1 interleaved-1f1b", "dp=1,pp=2,tp=1 zb-h1",
                                   "dp=1,pp=2,tp=1 zb-h2"}));
}

// In 16 bits, tensor ranks round what they add up.
TEST(VerifyLaunch, SixteenBitsOverTensorRanksAreEqualWithinTheirRounding) {
  const CommandResult run =
      launch(4, "verify --mesh tp=4 pp=2,tp=2 --precision bf16 f16 --accumulation 1 " + tiny_model +
                    "--heads 4");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  const CommandResult planted =
      launch(4, "verify --mesh tp=4 --precision bf16 --accumulation 1 " + tiny_model +
                    "--heads 4 --plant tensor=h.0.mlp.c_fc.weight,factor=2,rank=3");
  EXPECT_EQ(planted.exit_code, 1) << planted.output;
}

TEST(VerifyLaunch, NamesAPlantedFaultFirstWithItsRatio) {
  const TemporaryDirectory directory;
  const std::string json = directory.path("table.json");
  const CommandResult run =
      launch(4,
             "verify --plant tensor=h.1.mlp.c_fc.weight,factor=2,rank=1 --precision f64 "
             "--accumulation 1 " +
                 tiny_model + "--json " + json);
  EXPECT_EQ(run.exit_code, 1) << run.output;
  EXPECT_NE(run.output.find("WRONG"), std::string::npos) << run.output;
  const auto row = nlohmann::json::parse(std::ifstream(json)).at("rows").at(0);
  const auto& first = row.at("broken").at(0);
  EXPECT_EQ(first.at("what"), "gradient of h.1.mlp.c_fc.weight");
  EXPECT_EQ(first.at("rank"), 1);
  EXPECT_NEAR(first.at("ratio"), 2, 1e-9);
}

// A factor that f64 shows and f32 does not: one row in two is wrong, and that is enough.
TEST(VerifyLaunch, OneWrongRowIsEnoughToFail) {
  for (const std::string precisions : {"f64 f32", "f32 f64"}) {
    const CommandResult run =
        launch(2, "verify --plant tensor=wte.weight,factor=1.0000001,rank=0 --accumulation 1 " +
                      tiny_model + "--precision " + precisions);
    EXPECT_EQ(run.exit_code, 1) << run.output;
    EXPECT_NE(run.output.find("WRONG"), std::string::npos) << run.output;
    EXPECT_NE(run.output.find("  equal\n"), std::string::npos) << run.output;
  }
}

}  // namespace
}  // namespace ringworld
