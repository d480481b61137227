// What a user can get wrong: one clear message, a non-zero exit everywhere, nothing left running.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

struct BadInput {
  std::string name;
  std::string arguments;  // DATA stands for a good data file, DIRECTORY for a writable directory
  int exit_code;
  std::vector<std::string> facts;  // what the message must say
};

void PrintTo(const BadInput& bad, std::ostream* out) {
  *out << bad.name;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

class BadInputLaunch : public testing::TestWithParam<BadInput> {};

TEST_P(BadInputLaunch, IsRefusedOnceAndForAll) {
  const BadInput& bad = GetParam();
  const TemporaryDirectory directory;
  const std::string data = directory.write("data.txt", std::string(20'000, 'a'));
  directory.write("empty.txt", "");
  directory.write("short.txt", "short");
  directory.write("wrong.bin", std::string(1024, '\0') + "tokens");
  directory.write("unknown.toml", "learning-rat = 0.1\n");
  ASSERT_EQ(::mkfifo(directory.path("fifo").c_str(), 0600), 0);

  const std::string arguments =
      replaced(replaced(bad.arguments, "DATA", data), "DIRECTORY", directory.path());
  const CommandResult run = launch(4, arguments, /*seconds=*/30);
  EXPECT_EQ(run.exit_code, bad.exit_code) << run.output;
  EXPECT_EQ(occurrences(run.output, "ringworld: "), 1u) << run.output;
  for (const std::string& fact : bad.facts) {
    EXPECT_NE(run.output.find(fact), std::string::npos) << "no \"" << fact << "\" in:\n"
                                                        << run.output;
  }
}

constexpr int usage = 2;
constexpr int data_error = 3;
constexpr int out_of_memory = 4;
constexpr int numerical = 6;

const std::string train = "train --data DATA " + tiny_model;

INSTANTIATE_TEST_SUITE_P(
    Everything, BadInputLaunch,
    testing::Values(
        BadInput{"MissingFile", "train --data DIRECTORY/none.txt", data_error, {"none.txt"}},
        BadInput{"EmptyFile", "train --data DIRECTORY/empty.txt", data_error, {"empty.txt"}},
        BadInput{"ShorterThanASequence",
                 "train --data DIRECTORY/short.txt --sequence-length 64",
                 data_error,
                 {"short.txt", "5", "65"}},
        BadInput{"WrongMagic",
                 "train --data DIRECTORY/wrong.bin",
                 data_error,
                 {"wrong.bin", "20240520"}},
        BadInput{"MetricsCannotBeWritten",
                 train + "--metrics DIRECTORY/none/m.jsonl",
                 data_error,
                 {"m.jsonl"}},
        BadInput{"MetricsOnAFullDisk",
                 train + "--steps 2 --metrics /dev/full",
                 data_error,
                 {"/dev/full"}},
        BadInput{"BatchDoesNotDivide",
                 train + "--global-batch 17 --micro-batch 2",
                 usage,
                 {"17", "16", "24"}},
        BadInput{"HeadsDoNotDivide", train + "--heads 5", usage, {"5", "16"}},
        BadInput{"KeyValueHeadsDoNotDivide",
                 train + "--model llama-tiny --kv-heads 3",
                 usage,
                 {"3 kv-heads", "2 heads"}},
        BadInput{"NoKeyValueHeads", train + "--kv-heads 2", usage, {"gpt2-tiny", "kv-heads"}},
        BadInput{"LlamaHasNoDropout",
                 train + "--model llama-tiny --dropout 0.1",
                 usage,
                 {"llama-tiny", "dropout"}},
        BadInput{"ZeroSteps", train + "--steps 0", usage, {"--steps", "0"}},
        BadInput{"ZeroLayers", train + "--layers 0", usage, {"--layers", "0"}},
        BadInput{"NegativeWidth", train + "--width -16", usage, {"--width", "-16"}},
        BadInput{"NotANumber", train + "--learning-rate fast", usage, {"--learning-rate", "fast"}},
        BadInput{"SequenceTooLong", train + "--sequence-length 17", usage, {"17", "16"}},
        BadInput{"UnknownStrategy", train + "--strategy dpp", usage, {"dpp", "ddp"}},
        BadInput{"UnknownModel", train + "--model gtp2-tiny", usage, {"gtp2-tiny", "gpt2-tiny"}},
        BadInput{"UnknownOption",
                 train + "--learning-rat 1",
                 usage,
                 {"--learning-rat", "--learning-rate"}},
        BadInput{"UnknownKey",
                 train + "--config DIRECTORY/unknown.toml",
                 usage,
                 {"learning-rat", "learning-rate", "unknown.toml"}},
        BadInput{"UnknownCommand", "trian --data DATA", usage, {"trian", "train"}},
        BadInput{"OnlyDashes", train + "---", usage, {"---"}},
        BadInput{"NoName", train + "--=5", usage, {"--: "}},
        BadInput{"ValueForHelp", train + "--config=none.toml --help=5", usage, {"--help"}},
        BadInput{"TooManyThreads", train + "--threads 1000000", usage, {"--threads", "1000000"}},
        BadInput{"ConfigIsADirectory", train + "--config DIRECTORY", usage, {"--config"}},
        BadInput{"Fifo", "train --data DIRECTORY/fifo", data_error, {"fifo"}},
        BadInput{
            "TokensBeyondTheVocabulary", "verify --data DATA --vocabulary 97", data_error, {"97"}},
        BadInput{"VerifyDiverges",
                 "verify --steps 9 --learning-rate 1e300 " + tiny_model,
                 numerical,
                 {"control"}},
        BadInput{"NoCommand", "", usage, {"train", "verify"}},
        BadInput{"Sixteen", train + "--precision fp16", usage, {"fp16", "f16"}},
        BadInput{"ShardGroup",
                 train + "--strategy fsdp --shard-group 3",
                 usage,
                 {"--shard-group 3", "4 ranks", "1, 2, 4"}},
        BadInput{"OffloadWithoutAPath",
                 train + "--offload optimizer --offload-to file",
                 usage,
                 {"--offload-to file", "--offload-path"}},
        BadInput{"OffloadIntoNothing",
                 train + "--offload optimizer --offload-to file --offload-path /no/such/place",
                 data_error,
                 {"/no/such/place"}},
        BadInput{"OffloadParametersOfDdp",
                 train + "--offload parameters",
                 usage,
                 {"parameters", "ddp", "fsdp"}},
        BadInput{"HostMemoryTooSmall",
                 train + "--offload optimizer --host-memory 5KB",
                 out_of_memory,
                 {"host memory", "4.88 KiB"}},
        BadInput{"FileMemoryTooSmall",
                 train + "--offload optimizer --offload-to file --offload-path . --file-memory 5KB",
                 out_of_memory,
                 {"file", "4.88 KiB"}},
        BadInput{"UnknownDevice", train + "--device A100", usage, {"A100", "A100-40GB"}},
        BadInput{"BudgetTooSmall",
                 train + "--device-memory 20KB",
                 out_of_memory,
                 {"parameters", "19.53 KiB"}},
        BadInput{"NotFinite",
                 train + "--learning-rate 1e30 --clip-norm 0 --steps 9 --progress none",
                 numerical,
                 {"step 2", "rank 0", "first tensor"}},
        BadInput{"PlantNowhere",
                 "verify --plant tensor=h.0.mlp.fc,factor=2,rank=1",
                 usage,
                 {"h.0.mlp.fc", "h.0.mlp.c_fc"}},
        BadInput{
            "PlantOnNoRank", "verify --plant tensor=wte.weight,factor=2,rank=4", usage, {"rank 4"}},
        BadInput{"MeshIsNotTheWorld",
                 train + "--mesh dp=2,pp=2,tp=2",
                 usage,
                 {"dp 2 x pp 2 x tp 2 = 8", "there are 4", "dp=1,pp=2,tp=2"}},
        BadInput{"UnknownAxis", train + "--mesh dp=2,tpp=2", usage, {"'tpp'", "did you mean"}},
        BadInput{"AxisTwice", train + "--mesh tp=2,dp=1,tp=2", usage, {"axis tp is there twice"}},
        BadInput{
            "HeadsOverTensorRanks", train + "--mesh tp=4", usage, {"2 heads", "4 tensor ranks"}},
        BadInput{"KeyValueHeadsOverTensorRanks",
                 train + "--model llama-tiny --heads 8 --kv-heads 2 --mesh tp=4",
                 usage,
                 {"2 kv-heads", "4 tensor ranks"}},
        BadInput{"HiddenOverTensorRanks",
                 train + "--heads 4 --hidden 66 --mesh tp=4",
                 usage,
                 {"66 hidden", "4 tensor ranks"}},
        BadInput{"MoreStagesThanLayers",
                 train + "--mesh pp=4",
                 usage,
                 {"2 layers", "4 pipeline stages", "at most 2"}},
        BadInput{"MoreChunksThanLayers",
                 train + "--mesh dp=2,pp=2 --pipeline-schedule interleaved-1f1b",
                 usage,
                 {"2 layers", "4 pipeline stages (chunks counted)"}},
        BadInput{"StagesOfOtherLayers",
                 train + "--layers 8 --mesh pp=4 --stages 1,2,2,2",
                 usage,
                 {"--stages 1,2,2,2", "sum 7", "8 layers"}},
        BadInput{"StagesOfAnotherNumber",
                 train + "--layers 8 --mesh pp=4 --stages 4,4",
                 usage,
                 {"--stages 4,4", "2 numbers", "4 stages"}},
        BadInput{"StageOfNoLayer",
                 train + "--layers 8 --mesh pp=4 --stages 0,2,3,3",
                 usage,
                 {"--stages", "'0'"}},
        BadInput{"StagesWithoutAPipeline", train + "--stages 1,1", usage, {"--stages", "pp=N"}},
        BadInput{"ScheduleWithoutAPipeline",
                 train + "--pipeline-schedule zb-h1",
                 usage,
                 {"--pipeline-schedule", "pp=N"}},
        BadInput{"MoreMicroBatchesThanAPipelineTakes",
                 train + "--mesh pp=4 --micro-batch 1 --global-batch 3000000",
                 usage,
                 {"100000", "3000000"}},
        BadInput{"MicroBatchBeyondAllMemory",
                 train + "--micro-batch 250000000000 --global-batch 1000000000000",
                 usage,
                 {"--micro-batch 250000000000"}},
        BadInput{"WorldBeyondAllDryRuns",
                 "train --dry-run --world 2000000000 --global-batch 2000000000 --micro-batch 1",
                 usage,
                 {"--world 2000000000", "1000000"}},
        BadInput{
            "AxisThatIsPlannedOnly", train + "--mesh dp=2,ep=2", usage, {"'ep'", "plan --expert"}},
        BadInput{"ChunksWithoutAPipeline", train + "--chunks 2", usage, {"--chunks", "pp=N"}},
        BadInput{"ChunksOfAPlainSchedule",
                 train + "--layers 8 --mesh pp=4 --chunks 2",
                 usage,
                 {"1f1b", "2"}},
        BadInput{"MicroBatchesThatInterleavingDoesNotTake",
                 train + "--layers 8 --mesh pp=4 --pipeline-schedule interleaved-1f1b "
                         "--global-batch 6 --micro-batch 1",
                 usage,
                 {"interleaved-1f1b", "6", "4"}},
        BadInput{"SplitBackwardOfGradientsGivenAway",
                 train + "--mesh dp=2,pp=2 --pipeline-schedule zb-h1 --strategy fsdp",
                 usage,
                 {"zb-h1", "fsdp", "--reduce-gradients once"}},
        BadInput{"SequenceParallelWithoutTensorRanks",
                 train + "--sequence-parallel",
                 usage,
                 {"--sequence-parallel", "tp=N"}},
        BadInput{"DumpOfAMesh",
                 train + "--mesh dp=2,tp=2 --dump-step 1 DIRECTORY/dump",
                 usage,
                 {"--dump-step", "--mesh"}},
        BadInput{"BatchOverDataRanksOfAMesh",
                 train + "--mesh dp=2,tp=2 --global-batch 7 --micro-batch 2",
                 usage,
                 {"7", "4", "8"}},
        BadInput{"VerifyAMeshOfAnotherWorld",
                 "verify --mesh dp=2,tp=4 " + tiny_model,
                 usage,
                 {"dp 2 x pp 1 x tp 4 = 8", "there are 4"}},
        BadInput{"VerifyHeadsOverTensorRanks",
                 "verify --mesh tp=4 " + tiny_model,
                 usage,
                 {"2 heads", "4 tensor ranks"}},
        BadInput{"DryRunOfAMeshOfAnotherWorld",
                 train + "--dry-run --world 6 --mesh dp=2,tp=2",
                 usage,
                 {"dp 2 x pp 1 x tp 2 = 4", "there are 6"}},
        BadInput{"VerifyJsonCannotBeWritten",
                 "verify --json DIRECTORY/none/t.json",
                 data_error,
                 {"t.json"}}),
    [](const testing::TestParamInfo<BadInput>& bad) { return bad.param.name; });

// Ranks that were given different command lines, or different files under one name.
class DifferentRanks : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(DifferentRanks, AreRefused) {
  const TemporaryDirectory directory;
  directory.write("one/data.txt", std::string(20'000, 'a'));
  directory.write("two/data.txt", std::string(20'000, 'b'));
  const auto rank = [&](const std::string& arguments) {
    return " -n 1 " + std::string(RINGWORLD_PROGRAM) + " train " + tiny_model +
           replaced(arguments, "DIRECTORY", directory.path());
  };
  const auto& [first, second] = GetParam();
  const CommandResult run =
      run_command(std::string(RINGWORLD_LAUNCH) + rank(first) + " :" + rank(second), 30);
  EXPECT_EQ(run.exit_code, usage) << run.output;
  EXPECT_EQ(occurrences(run.output, "ringworld: "), 1u) << run.output;
  EXPECT_NE(run.output.find("different options or different data"), std::string::npos)
      << run.output;
}

const std::string one = "--data DIRECTORY/one/data.txt ";
INSTANTIATE_TEST_SUITE_P(Everything, DifferentRanks,
                         testing::Values(std::pair(one + "--seed 1", one + "--seed 2"),
                                         std::pair(one + "--heads 2", one + "--heads 1"),
                                         std::pair(one + "--beta1 0.5", one),
                                         std::pair(one, one + "--validation-interval 1")));

// The same command line in two directories that hold different files.
TEST(Launch, DifferentDataOnDifferentRanksIsRefused) {
  const TemporaryDirectory directory;
  directory.write("one/data.txt", std::string(20'000, 'a'));
  directory.write("two/data.txt", std::string(20'000, 'b'));
  const auto rank = [&](const std::string& in) {
    return " -n 1 sh -c 'cd " + directory.path(in) + " && exec " + RINGWORLD_PROGRAM +
           " train --data data.txt " + tiny_model + "'";
  };
  const CommandResult run =
      run_command(std::string(RINGWORLD_LAUNCH) + rank("one") + " :" + rank("two"), 30);
  EXPECT_EQ(run.exit_code, usage) << run.output;
  EXPECT_NE(run.output.find("different data"), std::string::npos) << run.output;
}

// What a machine may differ in is no difference.
TEST(Launch, ThreadsMayDifferBetweenRanks) {
  const std::string verify = " -n 1 " + std::string(RINGWORLD_PROGRAM) +
                             " verify --accumulation 1 " + tiny_model + "--threads ";
  const CommandResult run =
      run_command(std::string(RINGWORLD_LAUNCH) + verify + "1 :" + verify + "2", 30);
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

}  // namespace
}  // namespace ringworld
