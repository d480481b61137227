#include "cli/options.h"

#include <algorithm>
#include <limits>

#include <CLI/StringTools.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/bench_options.h"
#include "cli/option_groups.h"
#include "cli/option_set.h"
#include "collectives/hierarchical.h"
#include "collectives/proof.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Interval positive{0, infinity, false, false};
constexpr Interval not_negative{0, infinity, true, false};
constexpr Interval fraction{0, 1};
constexpr Interval fraction_below_one{0, 1, true, false};

// --- Groups that commands share ------------------------------------------------------------------

void declare_model(OptionSet& set, ModelOptions& model) {
  set.group("Model");
  set.choice("model", model.name, model_names(), "The model to build.");
  const auto dimension = [&set](const std::string& name, std::int64_t& value, const char* what) {
    set.custom(name, "N", "the model's own", what, false,
               [&set, name, &value](const std::vector<std::string>& values) {
                 value = set.parse_integer(name, values.front(), 1);
               });
  };
  dimension("layers", model.layers, "Number of blocks.");
  dimension("heads", model.heads, "Attention heads of each block, which must divide the width.");
  dimension("width", model.width, "Features of each token between blocks.");
  dimension("hidden", model.hidden, "Features inside each block's MLP.");
  dimension("vocabulary", model.vocabulary, "Number of distinct tokens; text as bytes has 256.");
  dimension("context", model.context, "Longest sequence, in tokens.");
}

void declare_strategy(OptionSet& set, StrategyOptions& strategy, ResourceOptions& resources) {
  set.group("Strategy");
  set.choice("strategy", strategy.name, strategy_names(),
             "How training is distributed over ranks.");
  set.size("bucket", strategy.bucket,
           "Gradients are reduced in buckets of about this size, while backward goes on.");
  set.text("algorithm", resources.algorithm, "NAME",
           "The collectives' algorithm, where an operation has one of this name; auto chooses by "
           "size, ranks and transport.");
}

// bf16 and f16 are known, and refused with the reason.
DType parse_precision(const OptionSet& set, const std::string& text) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    if (text == name_of(dtype)) {
      return dtype;
    }
  }
  if (text == name_of(DType::bf16) || text == name_of(DType::f16)) {
    set.refuse("precision", text,
               "mixed precision with f32 master weights is not available yet; use f32 or f64");
  }
  set.refuse_unknown("precision", text, std::vector<std::string>{"f32", "f64"});
}

// The numbers that optimizers take; which optimizer is each command's own option.
void declare_optimizer_numbers(OptionSet& set, OptimizerOptions& optimizer, double& clip_norm) {
  set.number("weight-decay", optimizer.weight_decay, not_negative, "X",
             "Decoupled weight decay per unit of learning rate; none on norms and biases.");
  set.number("beta1", optimizer.beta1, fraction_below_one, "X",
             "AdamW: what the mean of the gradients keeps per step.");
  set.number("beta2", optimizer.beta2, fraction_below_one, "X",
             "AdamW: what the mean of their squares keeps per step.");
  set.number("epsilon", optimizer.epsilon, positive, "X",
             "AdamW: added to the root of the mean square.");
  set.number("momentum", optimizer.momentum, fraction_below_one, "X",
             "SGD: what the velocity keeps per step.");
  set.number("clip-norm", clip_norm, not_negative, "X",
             "Gradients are scaled down to this global norm; 0 is off.");
}

void declare_seed(OptionSet& set, std::uint64_t& seed) {
  set.integer("seed", seed, 0, "N",
              "What initial weights and data order are a function of, whatever the ranks.");
}

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

std::string list_of_operations() {
  std::string list;
  for (const Operation operation : all_operations) {
    list += fmt::format("  {:<16}{}\n", name_of(operation),
                        fmt::join(algorithm_names(operation), ", "));
  }
  return list;
}

namespace {

// --- train --------------------------------------------------------------------------------------

void declare(OptionSet& set, TrainOptions& o) {
  declare_model(set, o.model);

  set.group("Data");
  set.texts(
      "data", o.data.paths, "PATH",
      "Files or directories to train on: text or any bytes (vocabulary 256), or llm.c's token "
      "files (.bin). Required.");
  set.text("validation-data", o.data.validation_path, "PATH",
           "Data to measure the validation loss on, instead of the end of --data.");
  set.number("validation-fraction", o.data.validation_fraction, fraction_below_one, "X",
             "How much of the end of --data is held out for validation.");
  set.integer("validation-interval", o.validation_interval, 0, "STEPS",
              "The validation loss is measured every so many steps; 0 is never.");
  set.integer("validation-batches", o.validation_batches, 0, "N",
              "Global batches that one measurement reads; 0 is all there are.");
  set.integer("sequence-length", o.data.sequence_length, 1, "TOKENS", "Length of each sequence.");

  declare_strategy(set, o.strategy, o.resources);

  set.group("Training");
  set.integer("steps", o.steps, 1, "N", "Optimizer steps of the run.");
  set.integer(
      "global-batch", o.global_batch, 1, "N",
      "Sequences per optimizer step, over all ranks; a multiple of micro-batch times ranks.");
  set.integer("micro-batch", o.micro_batch, 1, "N",
              "Sequences that a rank works on at once; the rest is accumulated.");
  set.custom("precision", "f32|f64", std::string(name_of(o.precision)),
             "Number format of parameters, gradients and computing.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.precision = parse_precision(set, values.front());
             });
  set.number("learning-rate", o.learning_rate.peak, positive, "X",
             "Learning rate after the warm-up.");
  set.integer("warmup-steps", o.learning_rate.warmup_steps, 0, "N",
              "Steps in which the learning rate rises linearly.");
  set.choice("schedule", o.learning_rate.schedule, all_learning_rate_schedules,
             "How the learning rate goes on after the warm-up.");
  set.number("minimum-learning-rate-fraction", o.learning_rate.minimum_fraction, fraction, "X",
             "Where the cosine ends, as a fraction of the learning rate.");
  set.choice("optimizer", o.optimizer.kind, all_optimizer_kinds,
             "How parameters follow their gradients.");
  declare_optimizer_numbers(set, o.optimizer, o.clip_norm);
  declare_seed(set, o.seed);

  set.group("Output");
  set.text("metrics", o.metrics, "FILE.jsonl",
           "Write the run's conditions and one JSON line per step to this file.");
  set.choice("progress", o.progress, all_progress_styles,
             "What rank 0 shows: a bar drawn over itself, lines, or nothing. auto draws a bar on a "
             "terminal; "
             "under mpiexec output is a pipe, so there a bar must be asked for.");

  declare_resources(set, o.resources);
  set.examples(
      "Examples:\n"
      "  mpiexec -n 4 ringworld train --data docs --model gpt2-tiny --steps 200\n"
      "  mpiexec -n 2 ringworld train --data shards/*.bin --model gpt2 --vocabulary 50257 \\\n"
      "      --global-batch 16 --micro-batch 4 --metrics run.jsonl\n"
      "  mpiexec -n 4 ringworld train --config run.toml --learning-rate 3e-4");
}

void check(TrainOptions& o) {
  if (o.data.paths.empty()) {
    throw UsageError(
        "--data: missing; give a file or directory to train on, for example --data docs");
  }
  if (o.validation_interval > 0 && o.data.validation_path.empty() &&
      o.data.validation_fraction == 0) {
    throw UsageError(fmt::format(
        "--validation-interval {} has nothing to measure with --validation-fraction 0; give a "
        "fraction above 0 or --validation-data",
        o.validation_interval));
  }
  o.learning_rate.steps = o.steps;
}

// --- verify -------------------------------------------------------------------------------------

// "tensor=NAME,factor=2,rank=1": the tensor is needed, the others have defaults.
Plant parse_plant(const OptionSet& set, const std::string& text) {
  const std::vector<std::string> known = {"tensor", "factor", "rank"};
  Plant plant;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      set.refuse_unknown("plant", key, known);
    }
    if (equals == std::string::npos || equals + 1 == part.size()) {
      set.refuse("plant", text, fmt::format("{} has no value; write {}=...", key, key));
    }
    const std::string value = part.substr(equals + 1);
    if (key == "tensor") {
      plant.tensor = value;
    } else if (key == "factor") {
      plant.factor = set.parse_number("plant", value, {-infinity, infinity, false, false});
    } else {
      plant.rank = set.parse_integer("plant", value, 0);
    }
  }
  if (plant.tensor.empty()) {
    set.refuse("plant", text, "names no tensor; write tensor=NAME,factor=2,rank=1");
  }
  return plant;
}

void declare(OptionSet& set, VerifyOptions& o) {
  declare_model(set, o.model);

  set.group("Data");
  set.texts(
      "data", o.data, "PATH",
      "Files or directories to train on, as for train; synthetic tokens where none is given.");
  set.integer("sequence-length", o.sequence_length, 1, "TOKENS", "Length of each sequence.");

  declare_strategy(set, o.strategy, o.resources);

  set.group("Training");
  set.integer("steps", o.steps, 1, "N", "Optimizer steps that are compared.");
  set.integer("micro-batch", o.micro_batch, 1, "N", "Sequences that a rank works on at once.");
  set.custom("accumulation", "N...", "1 3",
             "Micro-batches per rank and optimizer step; several are verified one after the other.",
             true, [&set, &o](const std::vector<std::string>& values) {
               o.accumulation.clear();
               for (const std::string& text : split_list(values)) {
                 o.accumulation.push_back(set.parse_integer("accumulation", text, 1));
               }
             });
  set.integer("global-batch", o.global_batch, 0, "N",
              "Sequences per optimizer step over all ranks, instead of --accumulation; 0 is off.");
  set.custom("precision", "f32|f64...", "f64 f32",
             "Number formats; several are verified one after the other.", true,
             [&set, &o](const std::vector<std::string>& values) {
               o.precisions.clear();
               for (const std::string& text : split_list(values)) {
                 o.precisions.push_back(parse_precision(set, text));
               }
             });
  set.number("learning-rate", o.learning_rate, positive, "X", "Learning rate, constant.");
  set.choice(
      "optimizer", o.optimizer.kind, all_optimizer_kinds,
      "How parameters follow their gradients. AdamW makes whole updates out of rounding noise "
      "where a gradient is zero in theory, so that it needs f64.");
  declare_optimizer_numbers(set, o.optimizer, o.clip_norm);
  declare_seed(set, o.seed);

  set.group("Output");
  set.text("json", o.json, "FILE.json", "Write the table to this file, too.");
  set.custom("plant", "tensor=NAME,factor=X,rank=R", "",
             "Multiply one gradient on one rank, to see that the table names it.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.plant = parse_plant(set, values.front());
             });

  declare_resources(set, o.resources);
  set.examples(
      "Examples:\n"
      "  mpiexec -n 4 ringworld verify\n"
      "  mpiexec -n 3 ringworld verify --accumulation 3 --precision f64 --json table.json\n"
      "  mpiexec -n 2 ringworld verify --plant tensor=h.0.mlp.c_fc.weight,factor=2,rank=1");
}

void check(VerifyOptions& o) {
  if (o.global_batch > 0 && !o.accumulation.empty()) {
    throw UsageError(fmt::format(
        "--global-batch {} and --accumulation {} both say how much is accumulated; give one",
        o.global_batch, fmt::join(o.accumulation, " ")));
  }
  if (o.global_batch == 0 && o.accumulation.empty()) {
    o.accumulation = {1, 3};
  }
}

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
  set.examples("Operations and their algorithms:\n" + list_of_operations() +
               "\nExamples:\n"
               "  ringworld show all_reduce --algorithm ring --ranks 4\n"
               "  ringworld show broadcast --algorithm tree --ranks 6 --root 2 --json -");
}

void check(ShowOptions& o) {
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
  if (o.algorithm.empty() && o.resources.reproducible) {
    o.algorithm = "auto";
  }
  check_algorithm(o.operation, o.algorithm);
  if (o.values.empty() && o.operation != Operation::barrier) {
    throw UsageError(
        "--values: missing; give each rank's numbers, for two ranks for example "
        "--values '[[1,2,3],[4,5,6]]'");
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

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> table = {
      {"train", "Trains a model on data, distributed over the ranks that mpiexec starts.",
       parse_as<TrainOptions>},
      {"verify", "Proves that distributed training gives the gradients of a single process.",
       parse_as<VerifyOptions>},
      {"show", "Shows a collective algorithm step by step, with its cost and the proof's verdict.",
       parse_as<ShowOptions>},
      {"call", "Runs one collective on given values and prints what each rank gets.",
       parse_as<CallOptions>},
      {"bench", "Times and verifies a collective's algorithms, beside the MPI library's own.",
       parse_as<BenchOptions>},
      {"compare",
       "Holds two dumps of a step against each other and names the first tensor that differs.",
       parse_as<CompareOptions>},
      {"capabilities", "Shows which algorithm serves which number format and reduction.",
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

// Commands on a collective are followed by its name.
Operation operation_of(const CommandEntry& entry, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with('-')) {
    throw UsageError(fmt::format("{}: an operation is missing behind it; there are:\n{}",
                                 entry.name, list_of_operations()));
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
    set.parse({arguments.begin() + 1, arguments.end()}, command_names());
  } else if constexpr (requires { options.paths; }) {
    options.paths = paths_of(entry, arguments);
    set.parse({arguments.begin() + 2, arguments.end()}, command_names());
  } else {
    set.parse(arguments, command_names());
  }
  check(options);
  options.settings = set.settings();
  return options;
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
      "  --version Print the version.\n\n"
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
