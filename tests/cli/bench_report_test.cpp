#include "cli/bench_report.h"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

BenchRow row(const std::string& algorithm, double median_seconds, bool in_place = false) {
  return {.operation = Operation::all_reduce,
          .algorithm = algorithm,
          .transport = "shared",
          .ranks = 4,
          .dtype = DType::f32,
          .op = ReduceOp::sum,
          .size = {.elements = 250'000, .block = 250'000, .bytes = Bytes(1'000'000)},
          .in_place = in_place,
          .time = {.min = median_seconds / 2,
                   .median = median_seconds,
                   .max = 1,
                   .iterations = 5,
                   .calls_per_iteration = 1},
          .steps = 6,
          .bytes_sent = Bytes(1'500'000)};
}

TEST(BenchReport, Bandwidths) {
  EXPECT_DOUBLE_EQ(row("ring", 1e-3).algorithm_bandwidth(), 1);
  EXPECT_DOUBLE_EQ(row("ring", 1e-3).bus_bandwidth(), 1.5);
}

TEST(BenchReport, ComparesWithMpiInTheSamePlace) {
  std::vector<BenchRow> rows = {row("ring", 1e-3), row("ring", 1e-3, true), row("mpi", 4e-3),
                                row("mpi", 8e-3, true)};
  compare_with_mpi(rows);
  EXPECT_DOUBLE_EQ(rows[0].vs_mpi.value(), 4);
  EXPECT_DOUBLE_EQ(rows[1].vs_mpi.value(), 8);
  EXPECT_DOUBLE_EQ(rows[2].vs_mpi.value(), 1);

  std::vector<BenchRow> alone = {row("ring", 1e-3)};
  compare_with_mpi(alone);
  EXPECT_FALSE(alone[0].vs_mpi.has_value());
  EXPECT_EQ(summary(alone), "");
}

TEST(BenchReport, TheSummaryIsTheGeometricMean) {
  std::vector<BenchRow> rows;
  for (const double factor : {2.0, 8.0}) {
    std::vector<BenchRow> of_size = {row("ring", 1), row("tree", 2 * factor), row("mpi", factor)};
    compare_with_mpi(of_size);
    rows.insert(rows.end(), of_size.begin(), of_size.end());
  }
  EXPECT_EQ(summary(rows), "Against mpi, geometric mean over sizes: ring 4.00x; tree 0.50x\n");
}

TEST(BenchReport, SaysThatOtherProgramsRan) {
  std::vector<BenchRow> rows = {row("ring", 1), row("tree", 1), row("mpi", 1)};
  EXPECT_EQ(disturbance(rows), "");
  rows[2].time.min = 0.1;  // how the library waits is its own affair
  EXPECT_EQ(disturbance(rows), "");
  rows[1].time.min = 0.1;
  EXPECT_TRUE(disturbance(rows).starts_with("In 1 of 2 rows")) << disturbance(rows);
}

TEST(BenchReport, TheTableHasTheColumnsOfNcclTests) {
  const Contender contender{&find_algorithm(Operation::all_reduce, "recursive_doubling"), false};
  const BenchTable table(Bytes(1 << 28), std::span(&contender, 1));
  const std::string titles = table.titles();
  std::size_t at = 0;
  for (const char* title : {"size", "count", "type", "redop", "algorithm", "time", "min", "algbw",
                            "busbw", "#wrong", "vs mpi"}) {
    at = titles.find(title, at);
    ASSERT_NE(at, std::string::npos) << title;
  }
  BenchRow shown = row("recursive_doubling", 1.25e-3);
  shown.wrong = 3;
  shown.vs_mpi = 123.4;
  std::istringstream cells(table.line(shown));
  std::vector<std::string> found;
  for (std::string cell; cells >> cell;) {
    found.push_back(cell);
  }
  EXPECT_EQ(found,
            (std::vector<std::string>{"1000000", "250000", "f32", "sum", "recursive_doubling",
                                      "1250.0", "625.00", "0.8000", "1.20", "3", "123x"}));
  EXPECT_EQ(titles.find('\n'), table.line(shown).find('\n'));
}

TEST(BenchReport, JsonAndCsvHoldTheSame) {
  std::vector<BenchRow> rows = {row("ring", 1e-3), row("mpi", 2e-3)};
  rows[1].steps = std::nullopt;
  rows[1].bytes_sent = std::nullopt;
  compare_with_mpi(rows);
  const nlohmann::ordered_json json = to_json(rows[0]);
  EXPECT_EQ(json["op"], "all_reduce");
  EXPECT_EQ(json["redop"], "sum");
  EXPECT_EQ(json["count"], 250'000);
  EXPECT_EQ(json["in_place"], false);
  EXPECT_DOUBLE_EQ(json["time_us"]["median"].get<double>(), 1000);
  EXPECT_EQ(json["bytes_sent_per_rank"], 1'500'000);
  EXPECT_EQ(to_json(rows[1])["steps"], nullptr);

  std::istringstream lines(to_csv(rows));
  std::string titles;
  std::string first;
  std::string second;
  ASSERT_TRUE(std::getline(lines, titles) && std::getline(lines, first) &&
              std::getline(lines, second));
  EXPECT_EQ(std::ranges::count(titles, ','), std::ranges::count(first, ','));
  EXPECT_EQ(std::ranges::count(titles, ','), std::ranges::count(second, ','));
  EXPECT_EQ(first.substr(0, 54), "all_reduce,ring,shared,4,f32,sum,1000000,250000,false,");
  EXPECT_NE(second.find(",,,1"), std::string::npos) << second;
}

TEST(BenchReport, TheChartHasALineForEachAlgorithm) {
  const std::vector<BenchRow> rows = {row("ring", 1e-3), row("ring", 2e-3, true), row("mpi", 2e-3)};
  const std::string svg = to_chart(rows, "conditions");
  for (const char* fact : {">ring<", ">ring, in place<", ">mpi<", "all_reduce of f32, sum, 4 ranks",
                           "ring: 1.5 GB/s", "stroke-dasharray=\"7 4\""}) {
    EXPECT_NE(svg.find(fact), std::string::npos) << fact;
  }
}

}  // namespace
}  // namespace ringworld
