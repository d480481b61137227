#include "training/metrics.h"

#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    lines.push_back(Json::parse(line));
  return lines;
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items())
    keys.push_back(item.key());
  return keys;
}

StepMetrics some_step() {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.loss = 2.5;
  metrics.validation_loss = 2.75;
  metrics.grad_norm = 0.125;
  metrics.learning_rate = 1e-3;
  metrics.tokens = std::int64_t{1} << 40;
  metrics.step_seconds = 0.5;
  metrics.tokens_per_second = 4096;
  metrics.sgemm_fraction = 0.75;
  metrics.bytes_sent = 1 << 20;
  metrics.collectives = 7;
  metrics.ledger.peak[static_cast<std::size_t>(Category::gradients)] = Bytes(64);
  metrics.ledger.total_peak = Bytes(96);
  metrics.peak_resident = Bytes(4096);
  return metrics;
}

TEST(Metrics, TheFirstLineHoldsSchemaAndConditionsInOrder) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("m.jsonl");
  const MetricsWriter writer(path, {{"ranks", 4}, {"model", "gpt2-tiny"}, {"cpus", 2}});
  const auto lines = lines_of(path);  // while the writer is open: it is flushed
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].dump(), R"({"schema":"ringworld.metrics","version":1,)"
                             R"("conditions":{"ranks":4,"model":"gpt2-tiny","cpus":2}})");
}

TEST(Metrics, OneLineAStepIsReadableAtOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("m.jsonl");
  MetricsWriter writer(path, Json::object());
  writer.write(some_step());
  StepMetrics bare = some_step();
  bare.step = 4;
  bare.validation_loss.reset();
  bare.sgemm_fraction.reset();
  writer.write(bare);

  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(
      keys_of(lines[1]),
      (std::vector<std::string>{"step", "loss", "validation_loss", "grad_norm", "learning_rate",
                                "tokens", "step_seconds", "tokens_per_second", "sgemm_fraction",
                                "bytes_sent", "collectives", "peak_bytes", "peak_resident_bytes"}));
  EXPECT_EQ(lines[1]["loss"], 2.5);
  EXPECT_EQ(lines[1]["tokens"], std::int64_t{1} << 40);
  EXPECT_EQ(lines[1]["peak_bytes"]["gradients"], 64);
  EXPECT_EQ(lines[1]["peak_bytes"]["activations"], 0);
  EXPECT_EQ(lines[1]["peak_bytes"]["total"], 96);
  EXPECT_EQ(lines[1]["peak_resident_bytes"], 4096);
  EXPECT_EQ(lines[2]["step"], 4);
  EXPECT_FALSE(lines[2].contains("validation_loss"));
  EXPECT_FALSE(lines[2].contains("sgemm_fraction"));
}

TEST(Metrics, LossScalingShowsOnlyWhereThereIsAny) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("m.jsonl");
  MetricsWriter writer(path, Json::object());
  StepMetrics metrics = some_step();
  metrics.loss_scale = 65536;
  metrics.skipped = true;
  writer.write(metrics);
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["loss_scale"], 65536);
  EXPECT_EQ(lines[1]["skipped"], true);
}

TEST(Metrics, NumbersThatAreNotFiniteStayValidJson) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("m.jsonl");
  MetricsWriter writer(path, {{"path", "not utf-8: \xff"}});
  StepMetrics metrics = some_step();
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  writer.write(metrics);
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[1]["loss"].is_null());
  EXPECT_TRUE(lines[1]["grad_norm"].is_null());
}

TEST(Metrics, DoublesComeBackAsTheyWere) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("m.jsonl");
  MetricsWriter writer(path, Json::object());
  StepMetrics metrics = some_step();
  metrics.loss = 2.0 / 3;
  writer.write(metrics);
  EXPECT_EQ(lines_of(path).at(1)["loss"].get<double>(), 2.0 / 3);
}

TEST(Metrics, APathThatCannotBeWrittenIsRefusedAtTheStart) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("missing/m.jsonl");
  expect_error<DataError>([&] { MetricsWriter(path, Json::object()); },
                          {path, "No such file or directory"});
}

TEST(Metrics, AFullDiskIsAnErrorAtOnce) {
  expect_error<DataError>([] { MetricsWriter("/dev/full", Json::object()); },
                          {"/dev/full", "No space left"});
}

}  // namespace
}  // namespace ringworld
