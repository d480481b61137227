#include "cli/training_options.h"

#include <algorithm>
#include <limits>

#include <CLI/StringTools.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/option_groups.h"
#include "cli/parallel_options.h"
#include "runtime/error.h"

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
  dimension("kv-heads", model.kv_heads,
            "Llama: heads of keys and values, which must divide the attention heads.");
  dimension("width", model.width, "Features of each token between blocks.");
  dimension("hidden", model.hidden, "Features inside each block's MLP.");
  dimension("vocabulary", model.vocabulary, "Number of distinct tokens; text as bytes has 256.");
  dimension("context", model.context, "Longest sequence, in tokens.");
  set.number("dropout", model.dropout, fraction_below_one, "X",
             "Probability of dropping an element of the embedding and of each residual branch.");
}

// Beside which strategy.
void declare_strategy(OptionSet& set, StrategyOptions& strategy, ResourceOptions& resources) {
  set.size("bucket", strategy.bucket,
           "ddp: gradients are reduced in buckets of about this size, while backward goes on.");
  set.choice("reduce-gradients", strategy.reduce_gradients, all_reduce_gradients,
             "zero2, fsdp: reduce gradients once per optimizer step, which holds them whole, or in "
             "every micro-batch, which keeps shards only. auto is the latter, for zero1 once.");
  set.boolean("reshard-after-forward", strategy.reshard_after_forward,
              "fsdp: release parameters after forward and gather them again for backward.");
  set.integer("prefetch", strategy.prefetch, 0, "UNITS",
              "fsdp: units whose parameters are gathered while one computes.");
  set.integer("shard-group", strategy.shard_group, 0, "RANKS",
              "Shard within groups of so many neighbours, and replicate across; 0 is all ranks.");
  set.text("algorithm", resources.algorithm, "NAME",
           "The collectives' algorithm, where an operation has one of this name; auto chooses by "
           "size, ranks and transport.");
}

Recomputation parse_recomputation(const OptionSet& set, const std::string& text) {
  if (text == "none" || text == "0") {
    return {};
  }
  if (text == "selective") {
    return {.attention = true};
  }
  if (text.find_first_not_of("0123456789") != std::string::npos) {
    set.refuse("checkpoint-activations", text,
               "give none, selective (attention alone is computed again), or K: of every K units "
               "only the first one's input is kept");
  }
  return {.checkpoint = set.parse_integer("checkpoint-activations", text, 1)};
}

// "25GB/s", in bytes per second.
double parse_bandwidth(const OptionSet& set, const std::string& name, const std::string& text) {
  if (!text.ends_with("/s")) {
    set.refuse(name, text, "a bandwidth is a size per second, for example 25GB/s");
  }
  return static_cast<double>(parse_bytes(text.substr(0, text.size() - 2), "--" + name).value);
}

// Beside what is offloaded, and where to.
void declare_offload(OptionSet& set, OffloadSettings& offload) {
  set.text("offload-path", offload.path, "DIR",
           "Directory for the file that --offload-to file needs; nothing is left there.");
  set.size("host-memory", offload.host_memory,
           "Host memory of each rank for what is offloaded, and for what is on its way.");
  set.size("file-memory", offload.file_memory, "Bytes in files of each rank.");
  const auto link = [&](const char* name, double& bandwidth, const char* sentence) {
    set.custom(name, "SIZE/s", "no limit", sentence, false,
               [&set, name, &bandwidth](const std::vector<std::string>& values) {
                 bandwidth = parse_bandwidth(set, name, values.front());
               });
  };
  link("host-link", offload.host_link,
       "Make transfers between device and host as slow as this, each way: 25GB/s is PCIe 4.");
  link("file-link", offload.file_link,
       "Make transfers between host and file as slow as this, each way: 3GB/s is one NVMe drive.");
}

constexpr DType precisions[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

DType parse_precision(const OptionSet& set, const std::string& text) {
  std::vector<std::string> known;
  for (const DType dtype : precisions) {
    if (text == name_of(dtype)) {
      return dtype;
    }
    known.emplace_back(name_of(dtype));
  }
  set.refuse_unknown("precision", text, known);
}

void declare_loss_scaling(OptionSet& set, TrainOptions& o) {
  set.custom("loss-scaling", "auto|none|static|dynamic", "auto",
             "What multiplies the loss, so that small gradients survive in f16; steps that "
             "overflow are skipped. auto is dynamic in f16 and none elsewhere.",
             false, [&set, &o](const std::vector<std::string>& values) {
               if (values.front() == "auto") {
                 o.loss_scaling_mode.reset();
                 return;
               }
               std::vector<std::string> known{"auto"};
               for (const LossScaling mode : all_loss_scalings) {
                 if (values.front() == name_of(mode)) {
                   o.loss_scaling_mode = mode;
                   return;
                 }
                 known.emplace_back(name_of(mode));
               }
               set.refuse_unknown("loss-scaling", values.front(), known);
             });
  LossScalerOptions& scaler = o.loss_scaling;
  set.number("loss-scale", scaler.initial_scale, {1, infinity, true, false}, "X",
             "The static scale, or where the dynamic one begins.");
  set.integer("loss-scale-window", scaler.growth_window, 1, "STEPS",
              "Good steps in a row after which the dynamic scale doubles.");
  set.integer("loss-scale-hysteresis", scaler.hysteresis, 1, "N",
              "Overflows after it grew until the dynamic scale is halved.");
  set.number("minimum-loss-scale", scaler.minimum_scale, positive, "X",
             "The dynamic scale goes no lower.");
  set.integer("maximum-skips", scaler.maximum_skips, 1, "STEPS",
              "So many skipped steps in a row end the run, naming the first tensor that is not "
              "finite.");
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

// Several of the known ones, each with name_of.
template <typename T, typename Known>
void declare_list(OptionSet& set, const std::string& name, std::vector<T>& list, const Known& known,
                  const std::string& default_text, const std::string& sentence) {
  std::vector<std::string> names;
  for (const T& one : known) {
    names.emplace_back(name_of(one));
  }
  set.custom(name, fmt::format("{}...", fmt::join(names, "|")), default_text, sentence, true,
             [&set, &list, name, names, known](const std::vector<std::string>& values) {
               list.clear();
               for (const std::string& text : split_list(values)) {
                 const auto found = std::ranges::find(names, text);
                 if (found == names.end()) {
                   set.refuse_unknown(name, text, names);
                 }
                 list.push_back(*(std::begin(known) + (found - names.begin())));
               }
             });
}

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

}  // namespace

std::string to_string(const Recomputation& recomputation) {
  if (recomputation.attention) {
    return "selective";
  }
  return recomputation.checkpoint == 0 ? "none" : std::to_string(recomputation.checkpoint);
}

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

  set.group("Strategy");
  set.choice("strategy", o.strategy.name, strategy_names(),
             "How training is distributed over ranks.");
  declare_strategy(set, o.strategy, o.resources);
  declare_parallel(set, o);

  set.group("Memory");
  set.custom("checkpoint-activations", "none|selective|K", "none",
             "Keep fewer activations and compute them again in backward: of every K units all but "
             "the first one's input, or attention's alone.",
             false, [&set, &o](const std::vector<std::string>& values) {
               o.recomputation = parse_recomputation(set, values.front());
             });
  set.choice("offload", o.offload.what, all_offloads,
             "What leaves the device: the optimizer's states, master copies too, shards of the "
             "parameters too.");
  set.choice("offload-to", o.offload.where, all_offload_targets, "Where it goes.");
  declare_offload(set, o.offload);

  set.group("Training");
  set.integer("steps", o.steps, 1, "N", "Optimizer steps of the run.");
  set.integer(
      "global-batch", o.global_batch, 1, "N",
      "Sequences per optimizer step, over all ranks; a multiple of micro-batch times ranks.");
  set.integer("micro-batch", o.micro_batch, 1, "N",
              "Sequences that a rank works on at once; the rest is accumulated.");
  set.custom("precision", "f32|f64|bf16|f16", std::string(name_of(o.precision)),
             "Number format of parameters, activations and computing. With bf16 and f16, sums, "
             "gradients, master weights and moments are f32.",
             false, [&set, &o](const std::vector<std::string>& values) {
               o.precision = parse_precision(set, values.front());
             });
  declare_loss_scaling(set, o);
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
  set.text("memory-timeline", o.memory_timeline, "FILE.json",
           "Write rank 0's device memory over the second step to this file, and a chart of it "
           "beside it, as SVG.");
  set.custom("dump-step", "K DIR", "",
             "Write the tensors of step K into this directory, for compare.", true,
             [&set, &o](const std::vector<std::string>& values) {
               if (values.size() != 2) {
                 set.refuse("dump-step", fmt::format("{}", fmt::join(values, " ")),
                            "give a step and a directory: --dump-step 3 dump");
               }
               o.dump.step = set.parse_integer("dump-step", values[0], 1);
               o.dump.directory = values[1];
             });
  set.choice("progress", o.progress, all_progress_styles,
             "What rank 0 shows: a bar drawn over itself, lines, or nothing. auto draws a bar on a "
             "terminal; "
             "under mpiexec output is a pipe, so there a bar must be asked for.");

  set.group("Dry run");
  set.flag("dry-run", o.dry_run.asked,
           "Run one rank of any world without data, mpiexec or the memory: what it would hold, "
           "send and compute.");
  set.integer("world", o.dry_run.world, 0, "RANKS",
              "Ranks of the dry run's world; 0 is as many as were started.");
  set.integer("rank", o.dry_run.rank, 0, "RANK", "The one to play.");
  set.text("json", o.dry_run.json, "FILE.json",
           "Write the dry run's result here, too; - prints it.");

  declare_resources(set, o.resources);
  set.examples(
      "Examples:\n"
      "  mpiexec -n 4 ringworld train --data docs --model gpt2-tiny --steps 200\n"
      "  mpiexec -n 2 ringworld train --data shards/*.bin --model gpt2 --vocabulary 50257 \\\n"
      "      --global-batch 16 --micro-batch 4 --metrics run.jsonl\n"
      "  mpiexec -n 4 ringworld train --data docs --strategy fsdp --precision bf16 \\\n"
      "      --checkpoint-activations 1 --device-memory 64MiB\n"
      "  ringworld train --dry-run --world 64 --rank 5 --strategy fsdp --model gpt2-xl \\\n"
      "      --global-batch 512 --sequence-length 1024\n"
      "  mpiexec -n 4 ringworld train --config run.toml --learning-rate 3e-4");
}

void check(TrainOptions& o) {
  if (o.data.paths.empty() && !o.dry_run.asked) {
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
  if (o.dump.step > o.steps) {
    throw UsageError(fmt::format("--dump-step {}: the run has only {} step{}", o.dump.step, o.steps,
                                 o.steps == 1 ? "" : "s"));
  }
  if (o.dry_run.asked && (o.dump.step > 0 || !o.memory_timeline.empty() || !o.metrics.empty())) {
    throw UsageError(
        "a dry run has no tensors, time or losses; leave out --dump-step, --memory-timeline and "
        "--metrics, or give --json FILE for its result");
  }
  o.model.recompute_attention = o.recomputation.attention;
  o.loss_scaling.mode = o.loss_scaling_mode.value_or(
      o.precision == DType::f16 ? LossScaling::dynamic : LossScaling::none);
  if (!o.dry_run.asked &&
      (o.dry_run.world != 0 || o.dry_run.rank != 0 || !o.dry_run.json.empty())) {
    throw UsageError(
        "--world, --rank and --json are of a dry run; add --dry-run, or leave them out");
  }
}

// --- verify -------------------------------------------------------------------------------------

void declare(OptionSet& set, VerifyOptions& o) {
  declare_model(set, o.model);

  set.group("Data");
  set.texts(
      "data", o.data, "PATH",
      "Files or directories to train on, as for train; synthetic tokens where none is given.");
  set.integer("sequence-length", o.sequence_length, 1, "TOKENS", "Length of each sequence.");

  set.group("Strategy");
  set.custom("strategy", "NAME...", "ddp",
             fmt::format("How training is distributed; several are verified one after the other. "
                         "all is every strategy with everything that it can be combined with, "
                         "unless that is given. Known: all, {}.",
                         fmt::join(strategy_names(), ", ")),
             true, [&set, &o](const std::vector<std::string>& values) {
               o.strategies.clear();
               std::vector<std::string> known = strategy_names();
               known.emplace_back("all");
               for (const std::string& text : split_list(values)) {
                 if (std::ranges::find(known, text) == known.end()) {
                   set.refuse_unknown("strategy", text, known);
                 }
                 o.strategies.push_back(text);
               }
             });
  declare_strategy(set, o.strategy, o.resources);
  declare_parallel(set, o.layouts);

  set.group("Memory");
  set.custom("checkpoint-activations", "none|selective|K...", "none",
             "Which activations are computed again in backward; several are verified.", true,
             [&set, &o](const std::vector<std::string>& values) {
               o.recomputations.clear();
               for (const std::string& text : split_list(values)) {
                 o.recomputations.push_back(parse_recomputation(set, text));
               }
             });
  declare_list(set, "offload", o.offloads, all_offloads, "none",
               "What leaves the device; several are verified.");
  declare_list(set, "offload-to", o.offload_targets, all_offload_targets, "host",
               "Where it goes; both may be verified.");
  declare_offload(set, o.offload);

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
  set.custom("precision", "f32|f64|bf16|f16...", "f64 f32",
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
      "  mpiexec -n 4 ringworld verify --strategy all --reproducible\n"
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
  const bool all = std::ranges::find(o.strategies, "all") != o.strategies.end();
  if (all) {
    o.strategies = {"ddp", "zero1", "zero2", "fsdp"};
  }
  const auto by_default = [](auto& list, auto otherwise) {
    if (list.empty()) {
      list = otherwise;
    }
  };
  by_default(o.strategies, std::vector<std::string>{"ddp"});
  const bool every_mesh = o.layouts.every_mesh;
  by_default(o.layouts.schedules,
             every_mesh ? pipeline_names() : std::vector<std::string>{PipelineOptions().schedule});
  by_default(o.layouts.sequence_parallel,
             every_mesh ? std::vector<bool>{false, true} : std::vector<bool>{false});
  using Precisions = std::vector<DType>;
  by_default(o.precisions, all ? Precisions{DType::f64, DType::f32, DType::bf16, DType::f16}
                               : Precisions{DType::f64, DType::f32});
  using Recomputations = std::vector<Recomputation>;
  by_default(o.recomputations,
             all ? Recomputations{{}, {.checkpoint = 1}, {.attention = true}} : Recomputations{{}});
  using Offloads = std::vector<Offload>;
  by_default(o.offloads, all ? Offloads(std::begin(all_offloads), std::end(all_offloads))
                             : Offloads{Offload::none});
  using Targets = std::vector<OffloadTo>;
  by_default(o.offload_targets,
             all ? Targets{OffloadTo::host, OffloadTo::file} : Targets{OffloadTo::host});
}

}  // namespace ringworld
