// What a benchmark found, as people and as programs read it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/bench_measure.h"
#include "cli/bench_sizes.h"
#include "collectives/schedule.h"
#include "runtime/backend.h"

namespace ringworld {

// One algorithm at one size.
struct BenchRow {
  Operation operation = Operation::all_reduce;
  std::string algorithm = {};
  std::string transport = {};
  int ranks = 1;
  DType dtype = DType::f32;
  std::optional<ReduceOp> op = {};
  BufferSize size = {};
  bool in_place = false;
  Timing time = {};
  std::int64_t wrong = 0;
  // Nothing where the algorithm is the library's secret.
  std::optional<std::int64_t> steps = {};
  std::optional<Bytes> bytes_sent = {};  // by the rank that sends most
  std::optional<double> vs_mpi = {};     // median time of `mpi` in this run over that of this
  std::string ran = {};                  // the algorithm itself, or the one that `auto` chose

  // 10^9 bytes per second at the median time.
  double algorithm_bandwidth() const;
  double bus_bandwidth() const;
};

// Fills vs_mpi of rows of one size.
void compare_with_mpi(std::span<BenchRow> rows);

// Lines for the terminal, each as wide as the others, as they come.
class BenchTable {
 public:
  // The widths follow from what will be shown.
  BenchTable(Bytes largest, std::span<const Contender> contenders);
  std::string titles() const;
  std::string line(const BenchRow& row) const;

 private:
  std::string joined(const std::vector<std::string>& cells) const;

  bool both_places_ = false;
  std::vector<std::size_t> widths_;
};

// "Against mpi, geometric mean over sizes: ring 3.2x, ...": one line, empty without mpi.
std::string summary(std::span<const BenchRow> rows);

// A line where many of the times of this project's own algorithms are several times the shortest,
// as beside other programs; else empty.
std::string disturbance(std::span<const BenchRow> rows);

nlohmann::ordered_json to_json(const BenchRow& row);
// With a line of titles.
std::string to_csv(std::span<const BenchRow> rows);
// Bus bandwidth over size, a line for each algorithm. `conditions` is a line below the title.
std::string to_chart(std::span<const BenchRow> rows, const std::string& conditions);

}  // namespace ringworld
