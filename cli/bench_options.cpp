#include "cli/bench_options.h"

#include <array>
#include <string>

#include <fmt/format.h>

#include "cli/bench_call.h"
#include "cli/bench_sizes.h"
#include "cli/option_groups.h"
#include "collectives/hierarchical.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr const char* default_sizes = "8:16M:8";

}  // namespace

void declare(OptionSet& set, BenchOptions& o) {
  set.usage("mpiexec -n RANKS ringworld bench OPERATION");
  set.group("Collective");
  set.custom("algorithms", "all|NAME...", "all",
             "Which algorithms: auto, from the list below, or compositions, "
             "hierarchical:NODES:REDUCE_SCATTER:ALL_REDUCE:ALL_GATHER; all is every one that can "
             "serve these ranks.",
             true, [&o](const std::vector<std::string>& values) {
               o.algorithms = split_list(values);
               if (o.algorithms == std::vector<std::string>{"all"}) {
                 o.algorithms.clear();
               }
             });
  set.custom("sizes", "SIZE,...|FIRST:LAST:FACTOR", default_sizes,
             "Bytes of the whole buffer: for all_gather and gather of the output, for the others "
             "of the input; rounded down to whole elements, as many for each rank, and at least "
             "one. K, M and G are powers of 1024.",
             false, [&o](const std::vector<std::string>& values) {
               o.sizes = parse_sizes(values.front(), "--sizes");
             });
  set.choice("dtype", o.dtype, all_dtypes, "Number format of the elements.");
  set.choice("op", o.op, all_reduce_ops, "The reduction, of operations that reduce.");
  set.integer("root", o.root, 0, "RANK",
              "The rank that the first call of an operation with a root begins or ends at, and the "
              "one that is verified. In the calls after it, the ranks after this one do in turn: a "
              "root that stays would run ahead of the others.");
  set.choice(
      "in-place", o.in_place, {"no", "yes", "both"},
      "Whether the output is the input's memory; no, where the operation can, unless given.");

  set.group("Measuring");
  set.integer(
      "iterations", o.iterations, 0, "N",
      "Times to take of each algorithm and size; 0 is as many as fill 0.3 s: 5 to 1000, or 3 to "
      "1000 where there is a root. Each is the mean of several calls where they take less than "
      "200 us, and of as many as there are ranks where there is a root.");
  set.integer("warmup", o.warmup, 0, "N",
              "Untimed calls before, with every root, beside those that find out how long one "
              "takes.");
  set.flag("inject-bitflip", o.inject_bitflip,
           "Flip one bit of what one rank got before it is verified, to see that #wrong shows it.");

  set.group("Output");
  set.text("json", o.json, "FILE.json",
           "Write conditions and rows to this file; - is standard output, instead of the table.");
  set.text("csv", o.csv, "FILE.csv", "The rows with a line of titles; - is standard output.");
  set.text("chart", o.chart, "FILE.svg", "Draw bandwidth over size, a line for each algorithm.");
  set.text("tune", o.tune, "FILE.json",
           "Write which algorithm was fastest at each size to this file, as rules for auto; rules "
           "in it that are for other operations, transports or ranks stay.");

  declare_resources(set, o.resources);
  set.examples(
      "Columns are those of nccl-tests: algbw is the size over the median time, busbw what each\n"
      "link must carry, #wrong the elements that are not what they must be, over all ranks. The\n"
      "time of a call is the slowest rank's. mpi is the MPI library's own call, with nothing "
      "around\n"
      "it, and vs mpi the median of its times over that of this algorithm, in the same run. The\n"
      "exit code is 1 when anything is wrong.\n"
      "\nOperations and their algorithms:\n" +
      list_of_operations() +
      "\nExamples:\n"
      "  mpiexec -n 4 ringworld bench all_reduce --sizes 8:256M:4 --chart all_reduce.svg\n"
      "  mpiexec -n 2 ringworld bench broadcast --algorithms tree,mpi --sizes 1M --json -");
}

void check(BenchOptions& o) {
  const std::string_view operation = name_of(o.operation);
  refuse_what_has_no_effect(o.operation, o.root, o.op);
  for (std::string& name : o.algorithms) {
    name = name == "auto" ? name : find_or_compose(o.operation, name).name;
  }
  if (o.operation == Operation::barrier) {
    if (!o.sizes.empty() || !o.chart.empty() || o.inject_bitflip) {
      throw UsageError(fmt::format("{}: a barrier moves nothing that has a size or a bit",
                                   !o.sizes.empty()   ? "--sizes"
                                   : !o.chart.empty() ? "--chart"
                                                      : "--inject-bitflip"));
    }
    o.sizes = {Bytes(0)};
  }
  if (o.sizes.empty()) {
    o.sizes = parse_sizes(default_sizes, "--sizes");
  }
  if (o.in_place.empty()) {
    o.in_place = has_out_of_place(o.operation) ? "no" : "yes";
  }
  if (o.in_place != "no" && !has_in_place(o.operation)) {
    throw UsageError(
        fmt::format("--in-place: '{}': {} is never in place; give no", o.in_place, operation));
  }
  if (o.in_place != "yes" && !has_out_of_place(o.operation)) {
    throw UsageError(
        fmt::format("--in-place: '{}': {} is always in place; give yes", o.in_place, operation));
  }
  if (!o.chart.empty() && !o.chart.ends_with(".svg")) {
    throw UsageError(fmt::format(
        "--chart: '{}': charts are written as SVG; give a name that ends in .svg", o.chart));
  }
  const std::array<const std::string*, 4> outputs = {&o.json, &o.csv, &o.chart, &o.tune};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = i + 1; j < outputs.size(); ++j) {
      if (*outputs[i] != "-" && !outputs[i]->empty() && *outputs[i] == *outputs[j]) {
        throw UsageError(
            fmt::format("'{}' is to be two outputs; give each a file of its own", *outputs[i]));
      }
    }
  }
  if (o.json == "-" && o.csv == "-") {
    throw UsageError("--csv: '-': --json - goes to standard output already; give one a file");
  }
}

}  // namespace ringworld
