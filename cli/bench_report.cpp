#include "cli/bench_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "cli/chart.h"

namespace ringworld {
namespace {

constexpr std::string_view reference = "mpi";

std::string_view op_name(const BenchRow& row) {
  return row.op ? name_of(*row.op) : "none";
}

// Microseconds, of which nobody needs more than six digits.
std::string time_text(double seconds) {
  const double us = seconds * 1e6;
  return fmt::format("{:.{}f}", us, us < 1000 ? 2 : us < 100'000 ? 1 : 0);
}

std::string rate_text(double gigabytes) {
  return fmt::format("{:.{}f}", gigabytes, gigabytes < 1 ? 4 : 2);
}

std::string factor_text(double factor) {
  return fmt::format("{:.{}f}x", factor, factor < 99.5 ? 2 : 0);
}

// "ring", "ring, in place": what makes one line of a chart or of a summary.
std::string series_name(const BenchRow& row, bool both_places) {
  return both_places && row.in_place ? row.algorithm + ", in place" : row.algorithm;
}

// A rank alone has nothing to move.
bool has_bus(const BenchRow& row) {
  return bus_factor(row.operation, row.ranks) > 0;
}

bool both_places(std::span<const BenchRow> rows) {
  return std::ranges::any_of(
      rows, [&](const BenchRow& row) { return row.in_place != rows.front().in_place; });
}

}  // namespace

double BenchRow::algorithm_bandwidth() const {
  return static_cast<double>(size.bytes.value) / time.median / 1e9;
}

double BenchRow::bus_bandwidth() const {
  return algorithm_bandwidth() * bus_factor(operation, ranks);
}

void compare_with_mpi(std::span<BenchRow> rows) {
  for (const BenchRow& mpi : rows) {
    if (mpi.algorithm != reference) {
      continue;
    }
    for (BenchRow& row : rows) {
      if (row.in_place == mpi.in_place && row.size == mpi.size) {
        row.vs_mpi = mpi.time.median / row.time.median;
      }
    }
  }
}

// --- For people ----------------------------------------------------------------------------------

BenchTable::BenchTable(Bytes largest, std::span<const Contender> contenders) {
  std::size_t names = 9;
  for (const Contender& contender : contenders) {
    names = std::max(names, contender.algorithm->name.size());
    both_places_ = both_places_ || contender.in_place != contenders.front().in_place;
  }
  const std::size_t sizes = std::max<std::size_t>(8, fmt::formatted_size("{}", largest.value));
  widths_ = {sizes, sizes, 4, 5, names, 9, 9, 7, 7, 6, 7};
  if (both_places_) {
    widths_.push_back(8);
  }
}

std::string BenchTable::joined(const std::vector<std::string>& cells) const {
  constexpr std::size_t algorithm = 4;  // the column that stands left
  std::string line;
  for (std::size_t i = 0; i < widths_.size(); ++i) {
    line += i == 0 ? "" : "  ";
    line += i == algorithm ? fmt::format("{:<{}}", cells[i], widths_[i])
                           : fmt::format("{:>{}}", cells[i], widths_[i]);
  }
  return line.erase(line.find_last_not_of(' ') + 1) + "\n";
}

std::string BenchTable::titles() const {
  return joined({"size", "count", "type", "redop", "algorithm", "time", "min", "algbw", "busbw",
                 "#wrong", "vs mpi", "in place"}) +
         joined({"(B)", "(elem.)", "", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "", ""});
}

std::string BenchTable::line(const BenchRow& row) const {
  return joined({fmt::format("{}", row.size.bytes.value), fmt::format("{}", row.size.block),
                 std::string(name_of(row.dtype)), std::string(op_name(row)), row.algorithm,
                 time_text(row.time.median), time_text(row.time.min),
                 rate_text(row.algorithm_bandwidth()), rate_text(row.bus_bandwidth()),
                 fmt::format("{}", row.wrong), row.vs_mpi ? factor_text(*row.vs_mpi) : "-",
                 row.in_place ? "yes" : "no"});
}

std::string summary(std::span<const BenchRow> rows) {
  std::vector<std::string> names;  // in the order of the rows
  std::map<std::string, std::vector<double>> logarithms;
  for (const BenchRow& row : rows) {
    const std::string name = series_name(row, both_places(rows));
    if (row.vs_mpi && row.algorithm != reference) {
      if (logarithms[name].empty()) {
        names.push_back(name);
      }
      logarithms[name].push_back(std::log(*row.vs_mpi));
    }
  }
  std::string text;
  for (const std::string& name : names) {
    double sum = 0;
    for (const double logarithm : logarithms[name]) {
      sum += logarithm;
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", name,
                        factor_text(std::exp(sum / std::ssize(logarithms[name]))));
  }
  return text.empty() ? "" : fmt::format("Against mpi, geometric mean over sizes: {}\n", text);
}

std::string disturbance(std::span<const BenchRow> rows) {
  constexpr double suspicious = 5;
  const auto own = [](const BenchRow& row) { return row.algorithm != reference; };
  const auto disturbed = std::ranges::count_if(rows, [&](const BenchRow& row) {
    return own(row) && row.time.median > suspicious * row.time.min;
  });
  return disturbed == 0
             ? ""
             : fmt::format(
                   "In {} of {} rows half of the times are over {:.0f} times the shortest: "
                   "other programs run on these CPUs, and nothing follows from such rows. "
                   "With a CPU for each rank, mpiexec -bind-to core (Open MPI: --bind-to "
                   "core) keeps ranks apart.\n",
                   disturbed, std::ranges::count_if(rows, own), suspicious);
}

// --- For programs --------------------------------------------------------------------------------

nlohmann::ordered_json to_json(const BenchRow& row) {
  using Json = nlohmann::ordered_json;
  return {{"op", name_of(row.operation)},
          {"algorithm", row.algorithm},
          {"transport", row.transport},
          {"ranks", row.ranks},
          {"dtype", name_of(row.dtype)},
          {"redop", row.op ? Json(name_of(*row.op)) : Json()},
          {"bytes", row.size.bytes.value},
          {"count", row.size.block},
          {"in_place", row.in_place},
          {"time_us",
           {{"min", row.time.min * 1e6},
            {"median", row.time.median * 1e6},
            {"max", row.time.max * 1e6}}},
          {"iterations", row.time.iterations},
          {"calls_per_iteration", row.time.calls_per_iteration},
          {"algbw_gbs", row.algorithm_bandwidth()},
          {"busbw_gbs", row.bus_bandwidth()},
          {"wrong", row.wrong},
          {"steps", row.steps ? Json(*row.steps) : Json()},
          {"bytes_sent_per_rank", row.bytes_sent ? Json(row.bytes_sent->value) : Json()},
          {"vs_mpi", row.vs_mpi ? Json(*row.vs_mpi) : Json()},
          {"ran", row.ran}};
}

std::string to_csv(std::span<const BenchRow> rows) {
  const auto optional = [](const auto& value) {
    return value ? fmt::format("{}", *value) : std::string();
  };
  std::string text =
      "op,algorithm,transport,ranks,dtype,redop,bytes,count,in_place,time_us_min,time_us_median,"
      "time_us_max,iterations,calls_per_iteration,algbw_gbs,busbw_gbs,wrong,steps,"
      "bytes_sent_per_rank,vs_mpi,ran\n";
  for (const BenchRow& row : rows) {
    const auto bytes_sent = row.bytes_sent ? std::optional(row.bytes_sent->value) : std::nullopt;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                        name_of(row.operation), row.algorithm, row.transport, row.ranks,
                        name_of(row.dtype), row.op ? name_of(*row.op) : "", row.size.bytes.value,
                        row.size.block, row.in_place, row.time.min * 1e6, row.time.median * 1e6,
                        row.time.max * 1e6, row.time.iterations, row.time.calls_per_iteration,
                        row.algorithm_bandwidth(), row.bus_bandwidth(), row.wrong,
                        optional(row.steps), optional(bytes_sent), optional(row.vs_mpi), row.ran);
  }
  return text;
}

std::string to_chart(std::span<const BenchRow> rows, const std::string& conditions) {
  Chart chart;
  chart.subtitle = conditions;
  if (!rows.empty()) {
    const BenchRow& row = rows.front();
    chart.y_title = has_bus(row) ? "bus bandwidth" : "bandwidth";
    chart.title = fmt::format("{} of {}{}, {} rank{}", name_of(row.operation), name_of(row.dtype),
                              row.op ? fmt::format(", {}", name_of(*row.op)) : "", row.ranks,
                              row.ranks == 1 ? "" : "s");
  }
  for (const BenchRow& row : rows) {
    const std::string name = series_name(row, both_places(rows));
    auto series = std::ranges::find(chart.series, name, &ChartSeries::name);
    if (series == chart.series.end()) {
      chart.series.push_back({.name = name, .reference = row.algorithm == reference});
      series = std::prev(chart.series.end());
    }
    const double bandwidth = has_bus(row) ? row.bus_bandwidth() : row.algorithm_bandwidth();
    series->points.emplace_back(row.size.bytes.value, bandwidth * 1e9);
  }
  for (ChartSeries& series : chart.series) {
    std::ranges::sort(series.points);
  }
  return to_svg(chart);
}

}  // namespace ringworld
