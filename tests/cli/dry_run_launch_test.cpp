// ringworld train --dry-run against the real thing: what it says a step holds and sends is what a
// real run under mpiexec holds and sends, to the byte.
#include <algorithm>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

struct Configuration {
  std::string name;
  int ranks;
  std::string options;
};

class DryRunLaunch : public testing::TestWithParam<Configuration> {
 protected:
  DryRunLaunch() {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += "a line of text number " + std::to_string(i * i) + "\n";
    }
    data_ = directory_.write("data.txt", text);
  }
  std::string options(const std::string& more) const {
    return "train --data " + data_ + " " + tiny_model + " --threads 1 " + more;
  }
  nlohmann::json dry_run(int world, int rank, const std::string& more) const {
    const CommandResult run =
        run_alone(options(more + " --dry-run --world " + std::to_string(world) + " --rank " +
                          std::to_string(rank) + " --json -"));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return nlohmann::json::parse(run.output);
  }

  TemporaryDirectory directory_;
  std::string data_;
};

TEST_P(DryRunLaunch, HoldsAndSendsWhatARealRunDoes) {
  const auto& [name, ranks, chosen] = GetParam();
  std::string more = chosen;
  if (const std::size_t place = more.find("DIR"); place != std::string::npos) {
    more.replace(place, 3, directory_.path(""));
  }
  const std::string metrics = directory_.path("metrics.jsonl");
  const CommandResult run =
      launch(ranks, options(more + " --steps 3 --progress none --metrics " + metrics));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const nlohmann::json real = read_json_lines(metrics).back();

  const nlohmann::json dry = dry_run(ranks, 0, more);
  EXPECT_EQ(dry.at("peak_bytes"), real.at("peak_bytes"));
  for (const char* tier : {"host_peak_bytes", "file_peak_bytes"}) {
    ASSERT_EQ(dry.contains(tier), real.contains(tier));
    if (dry.contains(tier)) {
      EXPECT_EQ(dry.at(tier), real.at(tier)) << tier;
    }
  }
  std::int64_t bytes = 0;
  std::int64_t calls = 0;
  if (dry.contains("collectives")) {
    for (const auto& call : dry.at("collectives")) {
      bytes += call.at("bytes_sent").get<std::int64_t>();
      calls += call.at("calls").get<std::int64_t>();
    }
  }
  EXPECT_EQ(bytes, real.at("bytes_sent"));
  EXPECT_EQ(calls, real.at("collectives"));
  ASSERT_EQ(dry.contains("offload"), real.contains("offload"));
  if (dry.contains("offload")) {
    for (const auto& [key, value] : dry.at("offload").items()) {
      EXPECT_EQ(value, real.at("offload").at(key)) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, DryRunLaunch,
    testing::Values(
        Configuration{"DdpAlone", 1, "--strategy ddp"},
        Configuration{"Ddp", 2, "--strategy ddp --global-batch 16"},
        Configuration{"DdpOverMpi", 2, "--strategy ddp --transport mpi"},
        Configuration{"DdpSmallBuckets", 3, "--bucket 1KiB --global-batch 24"},
        Configuration{"Zero1", 2, "--strategy zero1"},
        Configuration{"Zero1Odd", 3,
                      "--strategy zero1 --global-batch 24 --checkpoint-activations 1"},
        Configuration{"Zero2", 4, "--strategy zero2"},
        Configuration{"Zero2Once", 2, "--strategy zero2 --reduce-gradients once --precision f64"},
        Configuration{"Zero2Bf16", 2, "--strategy zero2 --precision bf16"},
        Configuration{"Fsdp", 3, "--strategy fsdp --global-batch 24"},
        Configuration{"FsdpOverMpi", 2, "--strategy fsdp --transport mpi"},
        Configuration{"FsdpNodes", 4, "--strategy fsdp --nodes 2"},
        Configuration{"FsdpKept", 2, "--strategy fsdp --reshard-after-forward false --prefetch 3"},
        Configuration{"FsdpF16", 2, "--strategy fsdp --precision f16 --checkpoint-activations 1"},
        Configuration{"FsdpDropout", 2,
                      "--strategy fsdp --dropout 0.1 --checkpoint-activations selective"},
        Configuration{"FsdpLlama", 2,
                      "--strategy fsdp --model llama-tiny --kv-heads 1 --precision bf16 "
                      "--checkpoint-activations selective"},
        Configuration{"FsdpHybrid", 4, "--strategy fsdp --shard-group 2"},
        Configuration{"FsdpReproducible", 2, "--strategy fsdp --reproducible --optimizer sgd"},
        Configuration{"OffloadOptimizer", 2, "--strategy zero1 --offload optimizer"},
        Configuration{"OffloadMasterBf16", 2, "--strategy zero2 --offload master --precision bf16"},
        Configuration{"OffloadParameters", 2, "--strategy fsdp --offload parameters"},
        Configuration{"Tensor", 2, "--mesh tp=2"},
        Configuration{"TensorSequenceFsdp", 4,
                      "--mesh dp=2,tp=2 --sequence-parallel --strategy fsdp --sequence-length 15"},
        Configuration{"TensorOfAnOddVocabulary", 2,
                      "--mesh tp=2 --vocabulary 257 --precision bf16"},
        Configuration{"Pipeline", 2, "--mesh pp=2 --micro-batch 1"},
        Configuration{"PipelineZeroBubble", 2,
                      "--mesh pp=2 --pipeline-schedule zb-h1 --micro-batch 1 --dropout 0.1"},
        Configuration{"PipelineZero1Offload", 4,
                      "--mesh dp=2,pp=2 --strategy zero1 --offload optimizer"},
        Configuration{"PipelineLlama", 2,
                      "--mesh pp=2 --model llama-tiny --checkpoint-activations 1 --micro-batch 1"},
        Configuration{"MeshInterleaved", 4,
                      "--mesh pp=2,tp=2 --layers 4 --sequence-parallel --strategy fsdp "
                      "--pipeline-schedule interleaved-1f1b --checkpoint-activations 1 "
                      "--micro-batch 1"},
        Configuration{"MeshOffloadParameters", 8,
                      "--mesh dp=2,pp=2,tp=2 --strategy fsdp --offload parameters"},
        Configuration{"OffloadToFile", 2,
                      "--strategy fsdp --offload parameters --precision bf16 --offload-to file "
                      "--offload-path DIR"}),
    [](const auto& configuration) { return configuration.param.name; });

TEST_F(DryRunLaunch, PlaysAnyRankOfAnyWorld) {
  const std::string more = "--strategy fsdp --global-batch 4096 --micro-batch 1";
  std::int64_t parameters = 0;
  for (const int rank : {0, 5, 4095}) {
    const nlohmann::json dry = dry_run(4096, rank, more);
    EXPECT_EQ(dry.at("conditions").at("ranks"), 4096);
    parameters += dry.at("peak_bytes").at("parameters").get<std::int64_t>();
  }
  EXPECT_GT(parameters, 0);
}

// Metrics are rank 0's. Another stage's peak shows where it is the largest: a budget of as many
// bytes will do for all ranks, and one byte less will not.
TEST_F(DryRunLaunch, KnowsThePeakOfALaterStage) {
  const std::string more =
      "--layers 4 --mesh pp=2,tp=2 --stages 1,3 --sequence-parallel --micro-batch 1 ";
  const auto peak = [&](int rank) {
    return dry_run(4, rank, more).at("peak_bytes").at("total").get<std::int64_t>();
  };
  const std::int64_t largest = peak(2);
  ASSERT_LT(peak(0), largest);
  ASSERT_EQ(peak(3), largest);
  const auto real = [&](std::int64_t budget) {
    return launch(
        4, options(more + "--steps 2 --progress none --device-memory " + std::to_string(budget)));
  };
  const CommandResult enough = real(largest);
  EXPECT_EQ(enough.exit_code, 0) << enough.output;
  const CommandResult too_little = real(largest - 1);
  EXPECT_EQ(too_little.exit_code, 4) << too_little.output;
}

// Llama 3 405B on 16384 ranks, any of them, in seconds.
TEST_F(DryRunLaunch, PlaysARankOfAMeshOf16384) {
  for (const int rank : {0, 8, 16383}) {
    const CommandResult run = run_alone(
        "train --dry-run --json - --model llama-3-405b --mesh dp=128,pp=16,tp=8 --strategy fsdp "
        "--sequence-parallel --precision bf16 --global-batch 2048 --micro-batch 1 "
        "--sequence-length 8192 --checkpoint-activations 1 --world 16384 --rank " +
            std::to_string(rank),
        /*seconds=*/30);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const nlohmann::json dry = nlohmann::json::parse(run.output);
    EXPECT_EQ(dry.at("conditions").at("ranks"), 16384);
    EXPECT_GT(dry.at("peak_bytes").at("total").get<std::int64_t>(), 0);
    std::set<std::string> labels;
    for (const auto& call : dry.at("collectives")) {
      labels.insert(call.at("label").get<std::string>().substr(0, 6));
    }
    EXPECT_TRUE(labels.contains("tensor")) << run.output;
    EXPECT_TRUE(labels.contains("pipeli")) << run.output;
    EXPECT_TRUE(labels.contains("gradie")) << run.output;
  }
}

// Where the model's states are: 16 bytes of each parameter in f32 with AdamW, of which each degree
// leaves fewer on every rank. GPT-2 124M among 4 ranks, in MiB.
TEST_F(DryRunLaunch, ModelStateOfGpt2IsAsPublished) {
  for (const auto& [strategy, mebibytes] :
       {std::pair("ddp", 1898.80), {"zero1", 1186.75}, {"zero2", 830.73}, {"zero3", 474.70}}) {
    const CommandResult run =
        run_alone(std::string("train --dry-run --json - --model gpt2 --world 4 --global-batch 16 "
                              "--micro-batch 4 --sequence-length 64 --strategy ") +
                  strategy);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const nlohmann::json peak = nlohmann::json::parse(run.output).at("peak_bytes");
    const double state = peak.at("parameters").get<double>() + peak.at("gradients").get<double>() +
                         peak.at("optimizer").get<double>();
    EXPECT_NEAR(state / (1 << 20), mebibytes, 0.02) << strategy;
  }
}

// Ring traffic of an optimizer step in f32: of a rank, 2 (N - 1) / N parameters, for zero3 3.
TEST_F(DryRunLaunch, RingTrafficOfGpt2IsTheory) {
  constexpr std::int64_t parameters = 124'439'808;
  for (const auto& [strategy, times] :
       {std::pair("ddp", 2), {"zero1", 2}, {"zero2", 2}, {"fsdp", 3}}) {
    const CommandResult run =
        run_alone(std::string("train --dry-run --json - --model gpt2 --world 4 --global-batch 16 "
                              "--micro-batch 4 --sequence-length 64 --algorithm ring --strategy ") +
                  strategy);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    std::int64_t bytes = 0;
    const nlohmann::json dry = nlohmann::json::parse(run.output);
    for (const auto& call : dry.at("collectives")) {
      const std::string label = call.at("label");
      if (label.starts_with("gradients") || label.starts_with("parameters")) {
        bytes += call.at("bytes_sent").get<std::int64_t>();
      }
    }
    EXPECT_EQ(bytes, times * (parameters / 4 * 3) * 4) << strategy;
  }
}

TEST_F(DryRunLaunch, EndsAsTheRealRunWould) {
  const auto expect_refused = [&](const std::string& more, int code,
                                  const std::vector<std::string>& words) {
    const CommandResult run = run_alone("train --dry-run " + more);
    EXPECT_EQ(run.exit_code, code) << run.output;
    for (const std::string& word : words) {
      EXPECT_NE(run.output.find(word), std::string::npos) << run.output;
    }
  };
  expect_refused("--world 3 --global-batch 32 --micro-batch 4", 2, {"--global-batch: 32", "24"});
  expect_refused("--world 6 --shard-group 4 --strategy fsdp --global-batch 24", 2,
                 {"--shard-group 4", "1, 2, 3, 6"});
  expect_refused("--world 4 --rank 4", 2, {"--rank 4", "world of 4"});
  expect_refused("--heads 3", 2, {"heads"});
  expect_refused("--world 2 --device-memory 12MiB", 4,
                 {"activations", "would fit", "--strategy", "--micro-batch 1"});
  expect_refused("--strategy zero1 --offload parameters", 2, {"zero1", "fsdp"});
}

// The directory is looked at, with the message of a real run, and nothing is left in it.
TEST_F(DryRunLaunch, LooksAtTheDirectoryOfTheFile) {
  const std::string more = "--offload optimizer --offload-to file --offload-path ";
  const auto message = [](const CommandResult& run) {
    return run.output.substr(std::min(run.output.find("ringworld: "), run.output.size()));
  };
  for (const std::string& path : {directory_.path("missing"), data_, std::string("/proc")}) {
    const CommandResult real = run_alone(options(more + path));
    const CommandResult dry = run_alone(options(more + path + " --dry-run"));
    EXPECT_EQ(dry.exit_code, 3) << dry.output;
    EXPECT_EQ(dry.exit_code, real.exit_code);
    EXPECT_EQ(message(dry), message(real));
    EXPECT_NE(dry.output.find("--offload-path " + path + ": no file can be made there"),
              std::string::npos)
        << dry.output;
  }
  const std::string empty = directory_.path("empty");
  ASSERT_TRUE(std::filesystem::create_directory(empty));
  const CommandResult dry = run_alone(options(more + empty + " --dry-run"));
  EXPECT_EQ(dry.exit_code, 0) << dry.output;
  EXPECT_TRUE(std::filesystem::is_empty(empty));
  // What is wrong with the options is said first, as a real run does.
  const CommandResult batch =
      run_alone(options(more + "/no/such/place --global-batch 3 --micro-batch 2 --dry-run"));
  EXPECT_EQ(batch.exit_code, 2) << batch.output;
}

}  // namespace
}  // namespace ringworld
