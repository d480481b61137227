// What ringworld train can be told.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/option_groups.h"
#include "cli/parallel_options.h"
#include "cli/training_groups.h"
#include "cli/training_options.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

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

}  // namespace

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

}  // namespace ringworld
