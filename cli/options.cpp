#include "cli/options.h"

#include <algorithm>
#include <limits>

#include <CLI/StringTools.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/bench_options.h"
#include "cli/lesson_options.h"
#include "cli/option_groups.h"
#include "cli/option_set.h"
#include "cli/plan_options.h"
#include "cli/plan_time_options.h"
#include "cli/show_pipeline_options.h"
#include "cli/show_shards_options.h"
#include "cli/training_options.h"
#include "collectives/hierarchical.h"
#include "collectives/proof.h"
#include "runtime/error.h"
#include "runtime/hardware.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

constexpr Interval not_negative{0, std::numeric_limits<double>::infinity(), true, false};
constexpr std::int64_t most_threads = 1024;

}  // namespace

void declare_resources(OptionSet& set, ResourceOptions& resources) {
  set.group("Resources");
  set.custom("threads", "N", std::to_string(resources.threads),
             "Compute threads per rank; 0 shares this machine's CPUs among its ranks.", false,
             [&set, &resources](const std::vector<std::string>& values) {
               resources.threads =
                   static_cast<int>(set.parse_integer("threads", values.front(), 0, most_threads));
             });
  set.size("device-memory", resources.device_memory,
           "Memory of each virtual GPU; what would pass it is an error with a report.");
  set.custom("device", "NAME", "", "The same as an accelerator has: A100-80GB, H100-80GB, ...",
             false, [&resources](const std::vector<std::string>& values) {
               resources.device = find_accelerator(values.front()).name;
             });
  set.choice("transport", resources.transport, all_transport_choices,
             "How messages travel: through memory that the ranks of a machine share, or MPI. auto "
             "shares it where the system allows that.");
  set.integer("nodes", resources.nodes, 1, "N",
              "Treat the ranks as those of so many machines, which share no memory.");
  set.text("tuning", resources.tuning, "FILE.json",
           "Rules by which auto chooses algorithms, as bench --tune writes them; users may edit "
           "them.");
  set.flag("explain", resources.explain,
           "Say at the end which algorithms auto chose, for which calls, and why.");
  set.flag(
      "reproducible", resources.reproducible,
      "Only algorithms serve that add contributions in the order of the ranks, so that results "
      "depend neither on which one it is nor on counts or buckets.");
  set.number("timeout", resources.timeout, {0, 1e6, false, true}, "SECONDS",
             "How long a rank waits for another without progress before it reports it missing.");
}

Bytes ResourceOptions::budget() const {
  return device_memory.value > 0 || device.empty() ? device_memory
                                                   : find_accelerator(device).memory;
}

std::string list_of_operations() {
  std::string list;
  for (const Operation operation : all_operations) {
    list += fmt::format("  {:<16}{}\n", name_of(operation),
                        fmt::join(algorithm_names(operation), ", "));
  }
  return list;
}

void refuse_what_has_no_effect(Operation operation, int root, ReduceOp op) {
  if (root != 0 && !has_root(operation)) {
    throw UsageError(fmt::format("--root: '{}': {} has no root", root, name_of(operation)));
  }
  if (op != ReduceOp::sum && !reduces(operation)) {
    throw UsageError(
        fmt::format("--op: '{}': {} reduces nothing", name_of(op), name_of(operation)));
  }
}

namespace {

// --- show and call -------------------------------------------------------------------------------

void declare_algorithm(OptionSet& set, std::string& algorithm, int& root) {
  set.group("Collective");
  set.text(
      "algorithm", algorithm, "NAME",
      "Which algorithm; the operation's first in the list below unless given. Or a composition, "
      "hierarchical:NODES:REDUCE_SCATTER:ALL_REDUCE:ALL_GATHER.");
  set.integer("root", root, 0, "RANK", "The rank that an operation with a root begins or ends at.");
}

void check_algorithm(Operation operation, std::string& algorithm) {
  if (algorithm != "auto") {
    algorithm = algorithm.empty() ? algorithm_names(operation).front()
                                  : find_or_compose(operation, algorithm).name;
  }
}

void declare(OptionSet& set, ShowOptions& o) {
  set.usage("ringworld show OPERATION");
  declare_algorithm(set, o.algorithm, o.root);
  set.integer("ranks", o.ranks, 1, "N", "For how many ranks the steps are shown, at most 64.");
  set.group("Output");
  set.text("json", o.json, "FILE.json",
           "Write schedules, contents, cost and verdict to this file; - is standard output.");
  set.examples(
      "Operations and their algorithms:\n" + list_of_operations() +
      "\nIn place of an operation, pipeline shows a pipeline schedule, and shards which slice of\n"
      "which tensor is on which rank, with options of their own: ringworld show pipeline --help "
      "and\n"
      "ringworld show shards --help list them.\n"
      "\nExamples:\n"
      "  ringworld show all_reduce --algorithm ring --ranks 4\n"
      "  ringworld show broadcast --algorithm tree --ranks 6 --root 2 --json -\n"
      "  ringworld show pipeline --schedule 1f1b --stages 4 --micro-batches 8\n"
      "  ringworld show shards --world 4 --strategy fsdp");
}

void check(ShowOptions& o) {
  refuse_what_has_no_effect(o.operation, o.root);
  check_algorithm(o.operation, o.algorithm);
  if (o.algorithm == "auto") {
    throw UsageError(
        "--algorithm: 'auto': stands for one algorithm or another, by size and ranks; name the one "
        "to show");
  }
  if (o.ranks > max_proved_ranks) {
    throw UsageError(fmt::format("--ranks: '{}': is out of range, it must be at most {}", o.ranks,
                                 max_proved_ranks));
  }
  if (o.root >= o.ranks) {
    throw UsageError(
        fmt::format("--root: '{}': is no rank of 0 to {}; see --ranks", o.root, o.ranks - 1));
  }
  const Algorithm& algorithm = find_algorithm(o.operation, o.algorithm);
  if (const std::string reason = algorithm.refuses(o.ranks); !reason.empty()) {
    throw UsageError(fmt::format("--ranks: '{}': {} {} cannot serve so many: {}", o.ranks,
                                 o.algorithm, name_of(o.operation), reason));
  }
}

void declare(OptionSet& set, CallOptions& o) {
  set.usage("mpiexec -n RANKS ringworld call OPERATION");
  declare_algorithm(set, o.algorithm, o.root);
  set.text(
      "values", o.values, "JSON",
      "For each rank its numbers: '[[1,2,3],[4,5,6]]'; for all_to_all either numbers or a list "
      "for each rank they go to. Required, but for barrier.");
  set.choice("dtype", o.dtype, all_dtypes, "Number format of the values.");
  set.choice("op", o.op, all_reduce_ops, "The reduction, of operations that reduce.");
  set.group("Output");
  set.text("json", o.json, "FILE.json", "Write the results to this file; - is standard output.");
  declare_resources(set, o.resources);
  set.examples(
      "Operations and their algorithms:\n" + list_of_operations() +
      "\nExamples:\n"
      "  mpiexec -n 2 ringworld call all_reduce --values '[[1,2,3],[4,5,6]]' --op avg\n"
      "  mpiexec -n 2 ringworld call all_to_all --values '[[[1],[2,3]],[[],[4]]]' --json -");
}

void check(CallOptions& o) {
  refuse_what_has_no_effect(o.operation, o.root, o.op);
  if (o.algorithm.empty() && o.resources.reproducible) {
    o.algorithm = "auto";
  }
  check_algorithm(o.operation, o.algorithm);
  if (o.values.empty() && o.operation != Operation::barrier) {
    throw UsageError(
        "--values: missing; give each rank's numbers, for two ranks for example "
        "--values '[[1,2,3],[4,5,6]]'");
  }
  if (!o.values.empty() && o.operation == Operation::barrier) {
    throw UsageError("--values: a barrier has none; leave them out");
  }
}

// --- compare ------------------------------------------------------------------------------------

void declare(OptionSet& set, CompareOptions& o) {
  set.usage("ringworld compare A B");
  set.group("Comparison");
  set.custom("bound", "X", "by precision: f64 1e-12, f32 1e-5, bf16 1e-2, f16 2e-3",
             "Up to which relative error |a - b| / |b| two tensors are equal.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.bound = set.parse_number("bound", values.front(), not_negative);
             });
  set.group("Output");
  set.text("json", o.json, "FILE.json", "Write every tensor to this file; - is standard output.");
  set.examples(
      "A and B are directories with dumps of the same step of one model, by any two strategies,\n"
      "numbers of ranks and micro-batches; B is what A is held against.\n\n"
      "Examples:\n"
      "  ringworld compare dump-fsdp dump-single\n"
      "  ringworld compare dump-fsdp dump-ddp --bound 1e-6 --json -");
}

void check(CompareOptions& /*o*/) {}

// --- capabilities and doctor --------------------------------------------------------------------

void declare(OptionSet& set, CapabilitiesOptions& o) {
  set.usage("ringworld capabilities");
  set.group("Output");
  set.text("json", o.json, "FILE.json", "Write every cell to this file; - is standard output.");
  set.examples(
      "Examples:\n"
      "  ringworld capabilities\n"
      "  ringworld capabilities --json -");
}

void check(CapabilitiesOptions& /*o*/) {}

void declare(OptionSet& set, DoctorOptions& o) {
  set.usage("[mpiexec -n RANKS] ringworld doctor");
  set.group("Output");
  set.text("json", o.json, "FILE.json", "Write the findings to this file; - is standard output.");
  set.group("Resources");
  set.number("timeout", o.timeout, {0, 1e6, false, true}, "SECONDS",
             "How long a rank waits for another before it reports it missing.");
  set.examples(
      "Examples:\n"
      "  ringworld doctor\n"
      "  mpiexec -n 4 ringworld doctor --json doctor.json");
}

void check(DoctorOptions& /*o*/) {}

// --- The table of commands ----------------------------------------------------------------------

struct CommandEntry {
  std::string name;
  std::string summary;
  Command (*parse)(const CommandEntry& entry, const std::vector<std::string>& arguments);
};

template <typename Options>
Command parse_as(const CommandEntry& entry, const std::vector<std::string>& arguments);
Command parse_show(const CommandEntry& entry, const std::vector<std::string>& arguments);
Command parse_plan(const CommandEntry& entry, const std::vector<std::string>& arguments);

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> table = {
      {"train", "Trains a model on data, distributed over the ranks that mpiexec starts.",
       parse_as<TrainOptions>},
      {"verify", "Proves that distributed training gives the gradients of a single process.",
       parse_as<VerifyOptions>},
      {"show",
       "Shows a collective algorithm or pipeline schedule, with its proof, or who holds what.",
       parse_show},
      {"plan", "Says what training needs before anything is rented: memory, time, layout, cost.",
       parse_plan},
      {"lesson",
       "Works out a course's lesson on distributed training: its tables, runs and exercises.",
       parse_as<LessonOptions>},
      {"call", "Runs one collective on given values and prints what each rank gets.",
       parse_as<CallOptions>},
      {"bench", "Times and verifies a collective's algorithms, beside the MPI library's own.",
       parse_as<BenchOptions>},
      {"compare",
       "Holds two dumps of a step against each other and names the first tensor that differs.",
       parse_as<CompareOptions>},
      {"capabilities",
       "Shows which algorithm serves what, and which strategy goes with which option.",
       parse_as<CapabilitiesOptions>},
      {"doctor", "Says whether MPI, CPUs, memory and host suit it, and what to do where not.",
       parse_as<DoctorOptions>},
  };
  return table;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const CommandEntry& entry : commands()) {
    names.push_back(entry.name);
  }
  return names;
}

// A command of two words. In a configuration file both are the section.
struct SecondWord {
  std::string word;
  CommandEntry entry;
};

// What `show` also shows, beside operations.
const std::vector<SecondWord>& shows() {
  static const std::vector<SecondWord> table = {
      {"pipeline",
       {"show pipeline",
        "Shows a pipeline schedule: its timeline, bubble and live micro-batches, and the proof's "
        "verdict.",
        parse_as<ShowPipelineOptions>}},
      {"shards",
       {"show shards",
        "Shows which slice of which tensor lives on which rank: of parameters, gradients and "
        "optimizer state.",
        parse_as<ShowShardsOptions>}},
  };
  return table;
}

// What is planned: the word behind `plan`.
const std::vector<SecondWord>& plans() {
  static const std::vector<SecondWord> table = {
      {"memory",
       {"plan memory", "Says what one GPU holds of a training, item by item, and if it fits.",
        parse_as<PlanMemoryOptions>}},
      {"step",
       {"plan step", "Says how long an optimizer step takes, and where its time goes.",
        parse_as<PlanStepOptions>}},
      {"search",
       {"plan search", "Weighs every layout for so many GPUs and shows the best.",
        parse_as<PlanSearchOptions>}},
      {"cost",
       {"plan cost", "Says what a whole training takes: days, dollars and energy.",
        parse_as<PlanCostOptions>}},
      {"validate",
       {"plan validate", "Holds the planner against what was published.",
        parse_as<PlanValidateOptions>}},
  };
  return table;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names = command_names();
  for (const auto* words : {&shows(), &plans()}) {
    for (const SecondWord& second : *words) {
      names.push_back(second.entry.name);
    }
  }
  return names;
}

// Commands on a collective are followed by its name.
Operation operation_of(const CommandEntry& entry, const std::vector<std::string>& arguments) {
  const bool shows = entry.name == "show";
  if (arguments.empty() || arguments.front().starts_with('-')) {
    throw UsageError(fmt::format(
        "{}: an operation is missing behind it; there are:\n{}{}", entry.name, list_of_operations(),
        shows ? "and pipeline, for pipeline schedules; shards, for who holds "
                "what\n"
              : ""));
  }
  return parse_operation(arguments.front());
}

// The two directories that compare is followed by.
std::vector<std::string> paths_of(const CommandEntry& entry,
                                  const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (i >= arguments.size() || arguments[i].starts_with('-')) {
      throw UsageError(fmt::format(
          "{}: {} missing behind it; for example: ringworld {} dump-fsdp dump-single", entry.name,
          i == 0 ? "the directories of two dumps are" : "the directory of a second dump is",
          entry.name));
    }
  }
  return {arguments.begin(), arguments.begin() + 2};
}

template <typename Options>
Command parse_as(const CommandEntry& entry, const std::vector<std::string>& arguments) {
  OptionSet set(entry.name, entry.summary);
  Options options;
  declare(set, options);
  const auto asks_help = [](const std::string& a) { return a == "--help" || a == "-h"; };
  if (std::any_of(arguments.begin(), arguments.end(), asks_help)) {
    return Text{set.help()};
  }
  if constexpr (requires { options.operation; }) {
    options.operation = operation_of(entry, arguments);
    set.parse({arguments.begin() + 1, arguments.end()}, section_names());
  } else if constexpr (requires { options.paths; }) {
    options.paths = paths_of(entry, arguments);
    set.parse({arguments.begin() + 2, arguments.end()}, section_names());
  } else {
    set.parse(arguments, section_names());
  }
  check(options);
  options.settings = set.settings();
  return options;
}

// `show` is followed by an operation, or by one of the words of shows().
Command parse_show(const CommandEntry& entry, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with('-')) {
    return parse_as<ShowOptions>(entry, arguments);
  }
  const std::string& word = arguments.front();
  std::vector<std::string> words;
  for (const SecondWord& show : shows()) {
    if (word == show.word) {
      return show.entry.parse(show.entry, {arguments.begin() + 1, arguments.end()});
    }
    words.push_back(show.word);
  }
  std::vector<std::string> known = words;
  for (const Operation operation : all_operations) {
    known.emplace_back(name_of(operation));
  }
  const std::string meant = nearest(word, known);
  if (std::ranges::find(known, word) == known.end() &&
      std::ranges::find(words, meant) != words.end()) {
    throw UsageError(
        fmt::format("show: there is no operation \"{}\"; did you mean {}? Choose one of: {}", word,
                    meant, fmt::join(known, ", ")));
  }
  return parse_as<ShowOptions>(entry, arguments);
}

// `plan` is followed by what is planned.
Command parse_plan(const CommandEntry& entry, const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  std::string list;
  for (const SecondWord& plan : plans()) {
    words.push_back(plan.word);
    list += fmt::format("  {:<15}{}\n", plan.entry.name, plan.entry.summary);
  }
  const std::string word = arguments.empty() ? "" : arguments.front();
  if (word == "--help" || word == "-h") {
    return Text{
        fmt::format("{}\n\n{}\nAfter each, --help prints its options.\n", entry.summary, list)};
  }
  for (const SecondWord& plan : plans()) {
    if (word == plan.word) {
      return plan.entry.parse(plan.entry, {arguments.begin() + 1, arguments.end()});
    }
  }
  if (word.empty() || word.starts_with('-')) {
    throw UsageError(fmt::format("plan: what to plan is missing behind it; there are:\n{}", list));
  }
  throw UsageError(
      fmt::format("plan: '{}': did you mean {}? There are:\n{}", word, nearest(word, words), list));
}

std::string list_of_commands() {
  std::string list;
  for (const CommandEntry& entry : commands()) {
    list += fmt::format("  {:<14}{}\n", entry.name, entry.summary);
  }
  return list;
}

std::string overview() {
  return fmt::format(
      "ringworld {}: distributed training on virtual GPUs, one MPI process each.\n\n"
      "Usage: mpiexec -n RANKS ringworld COMMAND [--option VALUE]...\n\n"
      "Commands:\n{}\n"
      "Options:\n"
      "  --help    Print this text; after a command, all its options with their defaults.\n"
      "  --version Print the version.\n"
      "  --capabilities  The same as the command.\n\n"
      "Example:\n"
      "  mpiexec -n 4 ringworld train --data docs --steps 200\n",
      RINGWORLD_VERSION, list_of_commands());
}

}  // namespace

std::string_view name_of(TransportChoice choice) {
  constexpr std::string_view names[] = {"auto", "shared", "mpi"};
  return names[static_cast<std::size_t>(choice)];
}

Command parse_command_line(const std::vector<std::string>& arguments) {
  const std::string first = arguments.empty() ? "" : arguments.front();
  if (first == "--help" || first == "-h") {
    return Text{overview()};
  }
  if (first == "--version") {
    return Text{fmt::format("ringworld {}\n", RINGWORLD_VERSION)};
  }
  if (first == "--capabilities") {
    return parse_command_line({"capabilities"});
  }
  for (const CommandEntry& entry : commands()) {
    if (first == entry.name) {
      return entry.parse(entry, {arguments.begin() + 1, arguments.end()});
    }
  }
  if (first.empty()) {
    throw UsageError("a command is missing; there are:\n" + list_of_commands());
  }
  if (first.starts_with('-')) {
    throw UsageError(
        fmt::format("{}: before a command there are only --help and --version; the "
                    "commands are:\n{}",
                    first, list_of_commands()));
  }
  throw UsageError(fmt::format("'{}': unknown command; did you mean {}? There are:\n{}", first,
                               nearest(first, command_names()), list_of_commands()));
}

}  // namespace ringworld
