// ringworld train as a user starts it: real processes under mpiexec.
#include <array>
#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

class TrainLaunch : public testing::Test {
 protected:
  TrainLaunch() {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      text += "the quick brown fox number " + std::to_string(i * i) + " jumps over the lazy dog\n";
    }
    data_ = directory_.write("data.txt", text);
  }

  std::string options(const std::string& more) const {
    return "train --data " + data_ + " " + tiny_model + more;
  }

  TemporaryDirectory directory_;
  std::string data_;
};

std::vector<double> losses(const std::vector<nlohmann::json>& lines) {
  std::vector<double> values;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    values.push_back(lines[i].at("loss"));
  }
  return values;
}

// As the console shows it.
std::string shown(double loss) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "loss %.4f", loss);
  return text.data();
}

TEST_F(TrainLaunch, LossesDoNotDependOnTheNumberOfRanks) {
  std::vector<double> control;
  for (const auto& [ranks, micro_batch] : {std::pair(1, 4), {1, 8}, {2, 4}, {4, 2}, {4, 1}}) {
    const std::string metrics = directory_.path("metrics.jsonl");
    const CommandResult run =
        launch(ranks, options("--steps 20 --global-batch 8 --progress none --learning-rate 0.01 "
                              "--micro-batch " +
                              std::to_string(micro_batch) + " --metrics " + metrics));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const std::vector<double> ours = losses(read_json_lines(metrics));
    ASSERT_EQ(ours.size(), 20u);
    if (control.empty()) {
      control = ours;
      EXPECT_LT(ours.back(), ours.front() - 0.5);  // it learns
    }
    for (std::size_t step = 0; step < ours.size(); ++step) {
      EXPECT_NEAR(ours[step], control[step], 1e-5 * control[step])
          << ranks << " ranks, step " << step + 1;
    }
  }
}

// The console and the metrics are rank 0's: they show the loss of the whole model, which only the
// last stage computes.
TEST_F(TrainLaunch, LossesDoNotDependOnTheMesh) {
  struct Case {
    int ranks;
    std::string mesh;
  };
  std::vector<double> control;
  std::vector<double> validation;
  for (const Case& c : {Case{1, ""}, Case{2, "--mesh tp=2"}, Case{2, "--mesh pp=2"},
                        Case{4, "--mesh pp=4 --strategy fsdp"},
                        Case{4, "--mesh dp=2,tp=2 --sequence-parallel --strategy zero2"},
                        Case{8,
                             "--mesh dp=2,pp=2,tp=2 --sequence-parallel --strategy fsdp "
                             "--pipeline-schedule interleaved-1f1b --checkpoint-activations 1"},
                        Case{4, "--mesh pp=2,tp=2 --pipeline-schedule zb-h1 --stages 3,1"}}) {
    SCOPED_TRACE(c.mesh);
    const std::string metrics = directory_.path("metrics.jsonl");
    const CommandResult run =
        launch(c.ranks, options("--layers 4 --steps 10 --global-batch 8 --micro-batch 2 "
                                "--learning-rate 0.01 --validation-interval 10 "
                                "--validation-batches 2 --progress lines " +
                                c.mesh + " --metrics " + metrics));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const auto lines = read_json_lines(metrics);
    const std::vector<double> ours = losses(lines);
    ASSERT_EQ(ours.size(), 10u);
    validation.push_back(lines.back().at("validation_loss"));
    if (control.empty()) {
      control = ours;
      EXPECT_LT(ours.back(), ours.front() - 0.5);  // it learns
    }
    for (std::size_t step = 0; step < ours.size(); ++step) {
      EXPECT_NEAR(ours[step], control[step], 1e-5 * control[step]) << "step " << step + 1;
    }
    EXPECT_NEAR(validation.back(), validation.front(), 1e-5 * validation.front());
    EXPECT_NE(run.output.find(shown(ours.back())), std::string::npos) << run.output;
  }
}

TEST_F(TrainLaunch, MetricsHoldConditionsAndEveryStep) {
  const std::string metrics = directory_.path("metrics.jsonl");
  const CommandResult run =
      launch(2, options("--steps 4 --global-batch 12 --micro-batch 2 --validation-interval 2 "
                        "--validation-batches 0 --seed 7 --metrics " +
                        metrics));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const auto lines = read_json_lines(metrics);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0].at("schema"), "ringworld.metrics");
  EXPECT_EQ(lines[0].at("version"), 1);
  const auto& conditions = lines[0].at("conditions");
  for (const char* key : {"ranks", "cpus_allowed", "threads_per_rank", "model", "parameters",
                          "precision", "seed", "mpi_library"}) {
    EXPECT_TRUE(conditions.contains(key)) << key;
  }
  EXPECT_EQ(conditions.at("ranks"), 2);
  EXPECT_EQ(conditions.at("seed"), 7);
  for (std::size_t step = 1; step < lines.size(); ++step) {
    const auto& line = lines[step];
    EXPECT_EQ(line.at("step"), step);
    EXPECT_EQ(line.at("tokens"), step * 12 * 16);
    EXPECT_EQ(line.contains("validation_loss"), step % 2 == 0);
    for (const char* key : {"loss", "grad_norm", "learning_rate", "step_seconds",
                            "tokens_per_second", "sgemm_fraction", "bytes_sent", "collectives"}) {
      EXPECT_GT(line.at(key), 0) << key;
    }
    EXPECT_EQ(line.at("bytes_sent"), lines[1].at("bytes_sent"));
    const auto& peak = line.at("peak_bytes");
    const std::int64_t model_bytes = 4 * conditions.at("parameters").get<std::int64_t>();
    EXPECT_EQ(peak.at("parameters"), model_bytes);
    EXPECT_EQ(peak.at("gradients"), model_bytes);
    EXPECT_EQ(peak.at("optimizer"), 2 * model_bytes);
    EXPECT_GT(peak.at("activations"), 0);
    EXPECT_GE(peak.at("total"), 4 * model_bytes);
  }
}

TEST_F(TrainLaunch, IsTheSameTwice) {
  std::vector<std::vector<double>> runs;
  for (int i = 0; i < 2; ++i) {
    const std::string metrics = directory_.path("metrics.jsonl");
    const CommandResult run =
        launch(3, options("--steps 5 --global-batch 6 --micro-batch 2 --metrics " + metrics));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    runs.push_back(losses(read_json_lines(metrics)));
  }
  EXPECT_EQ(runs[0], runs[1]);  // the same bits
}

TEST_F(TrainLaunch, ReadsItsOptionsFromAToml) {
  const std::string metrics = directory_.path("metrics.jsonl");
  const std::string config = directory_.write("run.toml",
                                              "steps = 3\n[train]\nmodel = \"mlp\"\nlayers = 1\n"
                                              "global-batch = 4\nmicro-batch = 2\nseed = 5\n");
  const CommandResult run =
      launch(2, "train --config " + config + " --data " + data_ + " --seed 6 --metrics " + metrics);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const auto lines = read_json_lines(metrics);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("conditions").at("model"), "mlp");
  EXPECT_EQ(lines[0].at("conditions").at("seed"), 6);  // the command line overrides
}

// A budget of what a run needs is enough for it, and nothing else is charged to it.
TEST_F(TrainLaunch, FitsIntoTheMemoryThatItReports) {
  const std::string metrics = directory_.path("metrics.jsonl");
  const std::string run =
      options("--steps 2 --global-batch 4 --micro-batch 2 --metrics " + metrics);
  ASSERT_EQ(launch(2, run).exit_code, 0);
  const double peak = read_json_lines(metrics).back().at("peak_bytes").at("total");
  // A tenth of margin: what communication holds at a moment depends on who is faster.
  const CommandResult enough =
      launch(2, run + " --device-memory " + std::to_string(static_cast<std::int64_t>(1.1 * peak)));
  EXPECT_EQ(enough.exit_code, 0) << enough.output;
  const CommandResult too_little =
      launch(2, run + " --device-memory " + std::to_string(static_cast<std::int64_t>(0.9 * peak)));
  EXPECT_EQ(too_little.exit_code, 4) << too_little.output;
}

// The ledger holds nearly everything that the process holds.
TEST_F(TrainLaunch, LedgerAgreesWithTheResidentSize) {
  const std::string metrics = directory_.path("metrics.jsonl");
  const CommandResult run = launch(
      1,
      "train --model gpt2 --data " + data_ +
          " --steps 2 --global-batch 2 --micro-batch 2 --sequence-length 64 --metrics " + metrics,
      /*seconds=*/240);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const auto lines = read_json_lines(metrics);
  const auto& last = lines.back();
  const double ledger = last.at("peak_bytes").at("total");
  const double resident = last.at("peak_resident_bytes");
  EXPECT_NEAR(ledger, resident, 0.1 * resident);
  // 16 bytes a parameter, plus what the micro-batch needs.
  const double parameters = lines[0].at("conditions").at("parameters");
  EXPECT_EQ(parameters, 124'439'808);
  const double states = last.at("peak_bytes").at("parameters").get<double>() +
                        last.at("peak_bytes").at("gradients").get<double>() +
                        last.at("peak_bytes").at("optimizer").get<double>();
  EXPECT_EQ(states, 16 * parameters);
}

}  // namespace
}  // namespace ringworld
