// ringworld bench: collectives timed and verified, every algorithm beside the others and beside the
// MPI library's own.
#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/bench_measure.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/rank.h"
#include "collectives/capabilities.h"
#include "collectives/hierarchical.h"
#include "collectives/selection.h"
#include "runtime/cgroup.h"
#include "runtime/environment.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

struct Refused {
  std::string algorithm;
  std::string reason;
};

std::string refusal_of(const Algorithm& algorithm, const BenchOptions& o, int ranks) {
  if (o.resources.reproducible && reduces(algorithm.operation) && !algorithm.rank_order) {
    return "it does not add in the order of the ranks, as --reproducible asks";
  }
  const std::string reason = algorithm.refuses(ranks);
  return reason.empty() ? refusal(algorithm, o.dtype, o.op) : reason;
}

// Stands for whatever auto chooses, size by size.
const Algorithm& automatic(Operation operation) {
  static std::map<Operation, Algorithm> rows;
  return rows
      .try_emplace(
          operation,
          Algorithm{
              .name = "auto", .operation = operation, .emit = {}, .steps = {}, .elements_sent = {}})
      .first->second;
}

std::vector<Contender> choose(const BenchOptions& o, int ranks, std::vector<Refused>& refused) {
  std::vector<Contender> contenders;
  const auto add = [&](const Algorithm& algorithm) {
    for (const bool in_place : {false, true}) {
      if (o.in_place == "both" || o.in_place == (in_place ? "yes" : "no")) {
        contenders.push_back({&algorithm, in_place});
      }
    }
  };
  for (const std::string& name : o.algorithms) {
    if (name == "auto") {
      add(automatic(o.operation));
      continue;
    }
    const Algorithm& algorithm = find_or_compose(o.operation, name);
    if (const std::string reason = refusal_of(algorithm, o, ranks); !reason.empty()) {
      throw UsageError(fmt::format("--algorithms: '{}': cannot serve {} {} of {} on {} ranks: {}",
                                   name, name_of(o.op), name_of(o.operation), name_of(o.dtype),
                                   ranks, reason));
    }
    add(algorithm);
  }
  if (!o.algorithms.empty()) {
    return contenders;
  }
  add(automatic(o.operation));
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.operation != o.operation) {
      continue;
    }
    if (const std::string reason = refusal_of(algorithm, o, ranks); !reason.empty()) {
      refused.push_back({algorithm.name, reason});
    } else {
      add(algorithm);
    }
  }
  return contenders;
}

// In the order that was asked for, each once.
std::vector<BufferSize> fit_all(const BenchOptions& o, int ranks) {
  std::vector<BufferSize> sizes;
  for (const Bytes asked : o.sizes) {
    const BufferSize size = fit(o.operation, asked, o.dtype, ranks);
    if (std::ranges::find(sizes, size) == sizes.end()) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

// --- The machine ---------------------------------------------------------------------------------

// What processes may still take; 0 where the system does not say.
Bytes available_memory() {
  const Bytes available = machine_memory().available;
  const CgroupLimits limits = cgroup_limits();
  return limits.memory == Bytes(0) ? available
                                   : std::min(available, limits.memory - limits.memory_used);
}

// Every rank's input, output and as much again as an algorithm may take for a working copy, which
// for sums of 16-bit formats is in f32.
void check_memory(const BenchOptions& o, const BufferSize& largest, int local_ranks) {
  const auto element = static_cast<double>(size_of(o.dtype).value);
  const double working = reduces(o.operation) ? std::max(element, 4.0) : element;
  const double needed = local_ranks * (element * BenchCall::elements_needed(o.operation, largest) +
                                       working * static_cast<double>(largest.elements));
  const Bytes available = available_memory();
  const double usable = 0.9 * static_cast<double>(available.value);
  if (available == Bytes(0) || needed <= usable) {
    return;
  }
  const double fits = static_cast<double>(largest.bytes.value) * usable / needed;
  const auto text = [](double bytes) { return to_string(Bytes(static_cast<std::int64_t>(bytes))); };
  throw UsageError(fmt::format(
      "--sizes: {} needs {} on this machine ({} ranks with an input, an output and a working copy "
      "each), {} are available; the largest size that fits is about {}",
      to_string(largest.bytes), text(std::min(needed, 9e18)), local_ranks, to_string(available),
      text(fits)));
}

Json conditions(const Rank& rank) {
  Json json = rank.conditions();
  json["cpu"] = cpu_model();
  json["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  std::array<double, 1> load{};
  json["load_average"] = getloadavg(load.data(), 1) == 1 ? Json(load[0]) : Json();
  return json;
}

// --- Measuring -----------------------------------------------------------------------------------

// Rows of one size, in the order of the contenders; the same on every rank.
std::vector<BenchRow> measure_rows(const BenchOptions& o, Communicator& communicator,
                                   BenchCall& call, const BufferSize& size,
                                   std::span<const Contender> contenders,
                                   const std::string& transport, bool one_machine) {
  const std::vector<Timing> timings = measure(communicator, call, size, contenders,
                                              {.iterations = o.iterations, .warmup = o.warmup});
  const int ranks = communicator.world_size();
  std::vector<BenchRow> rows;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const Algorithm& algorithm = *contenders[i].algorithm;
    const Verification found =
        verify(communicator, call, size, contenders[i], o.inject_bitflip, one_machine);
    BenchRow row = {.operation = o.operation,
                    .algorithm = algorithm.name,
                    .transport = algorithm.library ? "mpi" : transport,
                    .ranks = ranks,
                    .dtype = o.dtype,
                    .op = reduces(o.operation) ? std::optional(o.op) : std::nullopt,
                    .size = size,
                    .in_place = contenders[i].in_place,
                    .time = timings[i],
                    .wrong = found.wrong};
    const Algorithm& serves =
        algorithm.name == "auto" ? communicator.algorithm(o.operation, size.bytes) : algorithm;
    row.ran = serves.name;
    if (!serves.library) {
      row.steps = serves.steps.value(ranks, size.elements);
    }
    if (algorithm.name != "mpi") {
      row.bytes_sent = found.bytes_sent;
    }
    rows.push_back(std::move(row));
  }
  compare_with_mpi(rows);
  return rows;
}

// --- Tuning --------------------------------------------------------------------------------------

// What is in the file already; nothing where there is none, or an empty one.
Selection read_rules(const std::string& path) {
  std::error_code none;
  return std::filesystem::file_size(path, none) > 0 && !none ? Selection::read(path) : Selection();
}

// Rules for what was measured here, and those of `base` for everything else.
std::string rules(const Selection& base, std::span<const BenchRow> rows, const Json& conditions) {
  std::vector<Measurement> measurements;
  for (const BenchRow& row : rows) {
    if (row.algorithm != "mpi" && row.algorithm != "auto" &&
        row.in_place == rows.front().in_place) {
      measurements.push_back({.operation = row.operation,
                              .transport = row.transport,
                              .ranks = row.ranks,
                              .bytes = row.size.bytes,
                              .algorithm = row.algorithm,
                              .seconds = row.time.median});
    }
  }
  Selection selection = tuned(measurements, base);
  selection.set_conditions(conditions.dump());
  return selection.to_json();
}

// --- Output --------------------------------------------------------------------------------------

Json to_json(const BenchOptions& o, std::span<const BenchRow> rows,
             std::span<const Refused> refused, const Json& conditions) {
  Json json_rows = Json::array();
  for (const BenchRow& row : rows) {
    json_rows.push_back(to_json(row));
  }
  Json json_refused = Json::array();
  for (const Refused& one : refused) {
    json_refused.push_back({{"algorithm", one.algorithm}, {"reason", one.reason}});
  }
  return {
      {"schema", "ringworld.bench"},        {"version", 1},
      {"conditions", conditions},           {"root", has_root(o.operation) ? Json(o.root) : Json()},
      {"refused", std::move(json_refused)}, {"rows", std::move(json_rows)}};
}

// What is being measured, on a line of a terminal that the next one is drawn over. On standard
// error: some launchers make every standard output look like a terminal.
class StatusLine {
 public:
  explicit StatusLine(bool shown) : shown_(shown && isatty(STDERR_FILENO) == 1) {}
  void show(const std::string& text) const {
    if (shown_) {
      std::cerr << text << std::flush;
    }
  }
  void clear() const {
    if (shown_) {
      std::cerr << "\r\x1b[K" << std::flush;
    }
  }

 private:
  const bool shown_;
};

}  // namespace

ExitCode run_bench(const BenchOptions& o, Transport& transport) {
  const int ranks = transport.world_size();
  if (o.root >= ranks) {
    throw UsageError(fmt::format("--root: '{}': is no rank of 0 to {}", o.root, ranks - 1));
  }
  std::vector<Refused> refused;
  const std::vector<Contender> contenders = choose(o, ranks, refused);
  const std::vector<BufferSize> sizes = fit_all(o, ranks);
  const BufferSize& largest = *std::ranges::max_element(sizes, {}, &BufferSize::bytes);

  Rank rank(o.resources, transport);
  rank.check_same_everywhere(fmt::format("{}\n{}", name_of(o.operation), o.settings));
  Selection base;
  rank.on_rank_0([&] {
    if (!o.tune.empty()) {
      base = read_rules(o.tune);
    }
    check_writable("--tune", o.tune);
    check_memory(o, largest, transport.local_ranks());
    check_writable("--json", o.json);
    check_writable("--csv", o.csv);
    check_writable("--chart", o.chart);
  });

  const Json taken_under = conditions(rank);
  BenchCall call(rank.communicator(), transport.library(), o.operation, o.dtype, o.op, o.root,
                 largest);
  const bool shows = rank.prints() && o.json != "-" && o.csv != "-";
  const BenchTable table(largest.bytes, contenders);
  const StatusLine status(shows);
  if (shows) {
    std::cout << fmt::format(
        "{}{}; {}\n", name_of(o.operation),
        has_root(o.operation) ? fmt::format(", roots in turn from {}", o.root) : "",
        rank.description());
    if (ranks == 1) {
      std::cout
          << "one rank has nobody to exchange anything with: mpiexec -n 4 ringworld bench ... "
             "starts more\n";
    }
    if (!transport.own_core() && transport.world_size() > 1) {
      std::cout
          << "more ranks than CPUs: every time is one of shared CPUs, and that of mpi most of "
             "all\n";
    }
    for (const Refused& one : refused) {
      std::cout << fmt::format("without {}: {}\n", one.algorithm, one.reason);
    }
    std::cout << '\n' << table.titles() << std::flush;
  }

  std::vector<BenchRow> rows;
  for (const BufferSize& size : sizes) {
    status.show(fmt::format("measuring {}", to_string(size.bytes)));
    const std::vector<BenchRow> of_size =
        measure_rows(o, rank.communicator(), call, size, contenders, taken_under["transport"],
                     transport.local_ranks() == ranks);
    status.clear();
    for (const BenchRow& row : of_size) {
      if (shows) {
        std::cout << table.line(row) << std::flush;
      }
      rows.push_back(row);
    }
  }

  const auto wrong = std::ranges::count_if(rows, [](const BenchRow& row) { return row.wrong > 0; });
  if (shows) {
    std::cout << '\n' << summary(rows) << disturbance(rows);
    std::cout << (wrong == 0 ? "Every result is right.\n"
                             : fmt::format("WRONG: {} of {} rows have wrong elements.\n", wrong,
                                           rows.size()))
              << std::flush;
  }
  rank.on_rank_0([&] {
    write_file("--json", o.json, to_json(o, rows, refused, taken_under).dump(2) + "\n");
    write_file("--csv", o.csv, to_csv(rows));
    write_file("--chart", o.chart,
               to_chart(rows, fmt::format("{}; {}; {}", rank.description(),
                                          taken_under["cpu"].get<std::string>(),
                                          taken_under["date"].get<std::string>())));
    if (!o.tune.empty() && wrong > 0) {
      throw Error(ExitCode::failed,
                  fmt::format("--tune: '{}' stays as it was: rows with wrong elements do not tell "
                              "which algorithm is best",
                              o.tune));
    }
    if (!o.tune.empty()) {
      write_file("--tune", o.tune, rules(base, rows, taken_under));
      if (shows) {
        std::cout << fmt::format("Rules for what was measured are in {}; --tuning {} uses them.\n",
                                 o.tune, o.tune)
                  << std::flush;
      }
    }
  });
  rank.explain();
  return wrong == 0 ? ExitCode::ok : ExitCode::failed;
}

}  // namespace ringworld
