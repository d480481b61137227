#include "cli/options.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

// A command line as it is typed; no quoting.
Command parse(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;)
    arguments.push_back(word);
  return parse_command_line(arguments);
}

TrainOptions train(const std::string& line) {
  return std::get<TrainOptions>(parse("train --data d " + line));
}

VerifyOptions verify(const std::string& line) {
  return std::get<VerifyOptions>(parse("verify " + line));
}

void refuse(const std::string& line, std::initializer_list<std::string_view> facts) {
  const std::string message = expect_error<UsageError>([&] { parse(line); }, facts);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

// --- Values -------------------------------------------------------------------------------------

TEST(Options, TrainHasDefaults) {
  const TrainOptions o = train("");
  EXPECT_EQ(o.data.paths, std::vector<std::string>{"d"});
  EXPECT_EQ(o.model.name, "gpt2-tiny");
  EXPECT_EQ(o.model.layers, 0);
  EXPECT_EQ(o.strategy.name, "ddp");
  EXPECT_EQ(o.strategy.bucket, Bytes(25 << 20));
  EXPECT_EQ(o.data.validation_fraction, 0.1);
  EXPECT_EQ(o.validation_interval, 0);
  EXPECT_EQ(o.precision, DType::f32);
  EXPECT_EQ(o.optimizer.kind, OptimizerKind::adamw);
  EXPECT_EQ(o.learning_rate.schedule, LearningRateSchedule::cosine);
  EXPECT_EQ(o.progress, ProgressStyle::automatic);
  EXPECT_EQ(o.resources.threads, 0);
  EXPECT_EQ(o.resources.device_memory, Bytes(0));
  EXPECT_EQ(o.resources.timeout_milliseconds(), std::chrono::seconds(60));
}

TEST(Options, TrainTakesEveryOption) {
  const TrainOptions o = std::get<TrainOptions>(parse(
      "train --model mlp --layers 3 --heads 4 --kv-heads 2 --width 48 --hidden 96 --vocabulary 300 "
      "--context 77 --data a b c --validation-data v --validation-fraction 0.25 "
      "--validation-interval 7 --validation-batches 9 --strategy ddp --bucket 1MiB --steps 11 "
      "--global-batch 24 --micro-batch 3 --sequence-length 33 --precision f64 --optimizer sgd "
      "--learning-rate 2e-3 --warmup-steps 5 --schedule constant "
      "--minimum-learning-rate-fraction 0.5 --weight-decay 0.01 --beta1 0.8 --beta2 0.9 "
      "--epsilon 1e-7 --momentum 0.7 --clip-norm 0 --seed 42 --metrics m.jsonl "
      "--progress lines --threads 2 --device-memory 50MB --timeout 2.5"));
  EXPECT_EQ(o.model.name, "mlp");
  EXPECT_EQ(o.model.layers, 3);
  EXPECT_EQ(o.model.heads, 4);
  EXPECT_EQ(o.model.kv_heads, 2);
  EXPECT_EQ(o.model.width, 48);
  EXPECT_EQ(o.model.hidden, 96);
  EXPECT_EQ(o.model.vocabulary, 300);
  EXPECT_EQ(o.model.context, 77);
  EXPECT_EQ(o.data.paths, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(o.data.validation_path, "v");
  EXPECT_EQ(o.data.validation_fraction, 0.25);
  EXPECT_EQ(o.data.sequence_length, 33);
  EXPECT_EQ(o.validation_interval, 7);
  EXPECT_EQ(o.validation_batches, 9);
  EXPECT_EQ(o.strategy.bucket, Bytes(1 << 20));
  EXPECT_EQ(o.steps, 11);
  EXPECT_EQ(o.learning_rate.steps, 11);
  EXPECT_EQ(o.global_batch, 24);
  EXPECT_EQ(o.micro_batch, 3);
  EXPECT_EQ(o.precision, DType::f64);
  EXPECT_EQ(o.optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(o.learning_rate.peak, 2e-3);
  EXPECT_EQ(o.learning_rate.warmup_steps, 5);
  EXPECT_EQ(o.learning_rate.schedule, LearningRateSchedule::constant);
  EXPECT_EQ(o.learning_rate.minimum_fraction, 0.5);
  EXPECT_EQ(o.optimizer.weight_decay, 0.01);
  EXPECT_EQ(o.optimizer.beta1, 0.8);
  EXPECT_EQ(o.optimizer.beta2, 0.9);
  EXPECT_EQ(o.optimizer.epsilon, 1e-7);
  EXPECT_EQ(o.optimizer.momentum, 0.7);
  EXPECT_EQ(o.clip_norm, 0);
  EXPECT_EQ(o.seed, 42u);
  EXPECT_EQ(o.metrics, "m.jsonl");
  EXPECT_EQ(o.progress, ProgressStyle::lines);
  EXPECT_EQ(o.resources.threads, 2);
  EXPECT_EQ(o.resources.device_memory, Bytes(50'000'000));
  EXPECT_EQ(o.resources.timeout_milliseconds(), std::chrono::milliseconds(2500));
}

TEST(Options, VerifyHasDefaultsAndLists) {
  const VerifyOptions defaults = verify("");
  EXPECT_EQ(defaults.precisions, (std::vector<DType>{DType::f64, DType::f32}));
  EXPECT_EQ(defaults.accumulation, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(defaults.global_batch, 0);
  EXPECT_FALSE(defaults.plant.has_value());
  EXPECT_TRUE(defaults.data.empty());

  const VerifyOptions o =
      verify("--precision f32 --accumulation 2,4 --accumulation 8 --json t.json");
  EXPECT_EQ(o.precisions, std::vector<DType>{DType::f32});
  EXPECT_EQ(o.accumulation, (std::vector<std::int64_t>{2, 4, 8}));
  EXPECT_EQ(o.json, "t.json");

  const VerifyOptions batch = verify("--global-batch 12 --micro-batch 3");
  EXPECT_EQ(batch.global_batch, 12);
  EXPECT_TRUE(batch.accumulation.empty());
  refuse("verify --global-batch 12 --accumulation 3", {"--global-batch 12", "--accumulation 3"});
}

TEST(Options, AFaultIsPlantedByName) {
  const Plant full = verify("--plant tensor=h.0.ln_1.bias,factor=-0.5,rank=3").plant.value();
  EXPECT_EQ(full.tensor, "h.0.ln_1.bias");
  EXPECT_EQ(full.factor, -0.5);
  EXPECT_EQ(full.rank, 3);
  const Plant least = verify("--plant tensor=wte.weight").plant.value();
  EXPECT_EQ(least.factor, 2);
  EXPECT_EQ(least.rank, 0);
  refuse("verify --plant factor=2", {"--plant", "names no tensor"});
  refuse("verify --plant tensor=x,facto=2", {"--plant", "facto", "factor"});
  refuse("verify --plant tensor=x,rank=-1", {"--plant", "-1", "0 or more"});
  refuse("verify --plant tensor=x,factor=two", {"--plant", "two", "number"});
  refuse("verify --plant tensor=", {"--plant", "tensor has no value"});
}

TEST(Options, TheLastOfTwoValuesCounts) {
  EXPECT_EQ(train("--steps 5 --steps=6").steps, 6);
}

// --- Refusals -----------------------------------------------------------------------------------

TEST(Options, UnknownOptionsNameTheNearest) {
  refuse("train --data d --learning-rat 0.1",
         {"--learning-rat: unknown option", "did you mean --learning-rate?"});
  refuse("train --data d --learning-rat=0.1", {"--learning-rat:", "--learning-rate?"});
  refuse("train --data d -steps 5", {"-steps: unknown option", "--steps?"});
  refuse("verify --accumulate 3", {"--accumulate", "--accumulation?"});
  refuse("verify --metrics f", {"--metrics: unknown option", "ringworld verify --help"});
}

TEST(Options, CommandsAreListed) {
  refuse("", {"command is missing", "train", "verify"});
  refuse("trian --steps 5", {"'trian'", "did you mean train?", "verify"});
  refuse("--steps 5", {"--steps", "train", "verify"});
}

TEST(Options, ValuesAreCheckedAndNamed) {
  refuse("train --data d --steps 0", {"--steps", "'0'", "1 or more"});
  refuse("train --data d --steps -5", {"--steps", "'-5'", "1 or more"});
  refuse("train --data d --steps five", {"--steps", "'five'", "whole number"});
  refuse("train --data d --steps 5.5", {"--steps", "'5.5'", "whole number"});
  refuse("train --data d --steps 99999999999999999999", {"--steps", "at most"});
  refuse("train --data d --threads 5000000000", {"--threads", "at most"});
  refuse("train --data d --layers -1", {"--layers", "'-1'"});
  refuse("train --data d --learning-rate 0", {"--learning-rate", "'0'", "above 0"});
  refuse("train --data d --learning-rate nan", {"--learning-rate", "'nan'", "above 0"});
  refuse("train --data d --learning-rate 1e-3x", {"--learning-rate", "'1e-3x'", "not a number"});
  refuse("train --data d --beta2 1", {"--beta2", "'1'", "below 1"});
  refuse("train --data d --weight-decay -0.1", {"--weight-decay", "'-0.1'", "0 or more"});
  refuse("train --data d --validation-fraction 1.5", {"--validation-fraction", "'1.5'", "below 1"});
  refuse("train --data d --device-memory lots", {"--device-memory", "lots"});
  refuse("train --data d --device-memory 0", {"--device-memory", "0"});
  refuse("train --data d --timeout 0", {"--timeout", "'0'", "above 0"});
  refuse("train --data d --seed -1", {"--seed", "'-1'"});
  refuse("verify --accumulation 1,0", {"--accumulation", "'0'", "1 or more"});
}

TEST(Options, UnknownNamesGiveTheNearest) {
  refuse("train --data d --model gpt2-tny", {"--model", "'gpt2-tny'", "did you mean gpt2-tiny?"});
  refuse("train --data d --strategy dpp", {"--strategy", "'dpp'", "did you mean ddp?"});
  refuse("train --data d --optimizer adam", {"--optimizer", "'adam'", "adamw", "sgd"});
  refuse("train --data d --schedule cosin", {"--schedule", "'cosin'", "did you mean cosine?"});
  refuse("train --data d --progress bra", {"--progress", "'bra'", "did you mean bar?"});
  refuse("train --data d --precision f46", {"--precision", "'f46'", "f32, f64"});
}

TEST(Options, PrecisionsAndTheirLossScaling) {
  const auto scaling = [](const std::string& more) {
    return std::get<TrainOptions>(parse("train --data d " + more)).loss_scaling.mode;
  };
  EXPECT_EQ(scaling("--precision f32"), LossScaling::none);
  EXPECT_EQ(scaling("--precision bf16"), LossScaling::none);
  EXPECT_EQ(scaling("--precision f16"), LossScaling::dynamic);
  EXPECT_EQ(scaling("--precision f16 --loss-scaling static"), LossScaling::fixed);
  EXPECT_EQ(scaling("--loss-scaling dynamic"), LossScaling::dynamic);
  refuse("train --data d --precision fp16", {"--precision", "fp16", "f16"});
  refuse("train --data d --loss-scaling dynamc", {"--loss-scaling", "dynamc", "dynamic"});
}

TEST(Options, WhatIsRecomputedAndOffloaded) {
  const auto o = std::get<TrainOptions>(
      parse("train --data d --strategy fsdp --checkpoint-activations 2 --offload parameters "
            "--offload-to file --offload-path p --host-link 25GB/s --file-link 3GB/s "
            "--host-memory 1GiB --reshard-after-forward false --device a100-40gb"));
  EXPECT_EQ(to_string(o.recomputation), "2");
  EXPECT_EQ(o.offload.what, Offload::parameters);
  EXPECT_EQ(o.offload.where, OffloadTo::file);
  EXPECT_EQ(o.offload.host_link, 25e9);
  EXPECT_EQ(o.offload.file_link, 3e9);
  EXPECT_EQ(o.offload.host_memory, Bytes(1 << 30));
  EXPECT_FALSE(o.strategy.reshard_after_forward);
  EXPECT_EQ(o.resources.budget(), Bytes(40'000'000'000));
  EXPECT_TRUE(std::get<TrainOptions>(parse("train --data d --checkpoint-activations selective"))
                  .model.recompute_attention);
  refuse("train --data d --checkpoint-activations all", {"all", "selective", "K"});
  refuse("train --data d --checkpoint-activations -1", {"--checkpoint-activations"});
  refuse("train --data d --host-link 25GB", {"--host-link", "25GB/s"});
  refuse("train --data d --reshard-after-forward no", {"--reshard-after-forward", "no", "true"});
  refuse("train --data d --device A100", {"A100", "A100-40GB"});
  refuse("train --data d --world 4", {"--world", "--dry-run"});
}

TEST(Options, VerifyAllIsEveryCombination) {
  const auto o = std::get<VerifyOptions>(parse("verify --strategy all --offload none"));
  EXPECT_EQ(o.strategies, (std::vector<std::string>{"ddp", "zero1", "zero2", "fsdp"}));
  EXPECT_EQ(o.precisions.size(), 4u);
  EXPECT_EQ(o.recomputations.size(), 3u);
  EXPECT_EQ(o.offloads, std::vector{Offload::none});
  EXPECT_EQ(o.offload_targets.size(), 2u);
  const auto plain = std::get<VerifyOptions>(parse("verify"));
  EXPECT_EQ(plain.strategies, std::vector<std::string>{"ddp"});
  EXPECT_EQ(plain.precisions, (std::vector{DType::f64, DType::f32}));
  refuse("verify --strategy ddp,zreo1", {"zreo1", "zero1"});
}

TEST(Options, MissingValuesAndStrayWordsAreNamed) {
  refuse("train --data d --steps", {"--steps"});
  refuse("train --data d --steps --seed 1", {"--steps"});
  refuse("train --steps 5", {"--data", "missing"});
  refuse("train --data d --steps 5 6", {"'6'", "unexpected"});
  refuse("train steps 5 --data d", {"'steps'", "unexpected"});
  refuse("train --data d --validation-interval 5 --validation-fraction 0",
         {"--validation-interval 5", "--validation-fraction 0"});
  expect_error<UsageError>(
      [] {
        parse_command_line({"train", "--data", "d", "--metrics", ""});
      },
      {"--metrics", "missing"});
}

// --- Help ---------------------------------------------------------------------------------------

TEST(Options, HelpListsEveryOptionOfTheCommandByGroup) {
  const std::string help = std::get<Text>(parse("train --steps 5 --help")).text;
  for (const char* fact :
       {"Model:", "Data:", "Strategy:", "Training:", "Output:", "Resources:", "--learning-rate X",
        "[0.001]", "--bucket SIZE", "[25.00 MiB]", "--config FILE.toml", "--precision f32|f64",
        "gpt2-tiny", "Examples:", "mpiexec -n 4 ringworld train"}) {
    EXPECT_NE(help.find(fact), std::string::npos) << fact << " is not in\n" << help;
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 100u) << line;
  EXPECT_NE(std::get<Text>(parse("verify -h")).text.find("--plant"), std::string::npos);
}

TEST(Options, OverviewAndVersion) {
  const std::string overview = std::get<Text>(parse("--help")).text;
  for (const char* fact : {"train", "verify", "mpiexec", "--version"}) {
    EXPECT_NE(overview.find(fact), std::string::npos) << fact;
  }
  EXPECT_EQ(std::get<Text>(parse("--version")).text, "ringworld 0.1.0\n");
}

// --- Configuration files ------------------------------------------------------------------------

class Config : public ::testing::Test {
 protected:
  std::string file(std::string_view content) { return directory_.write("run.toml", content); }
  TrainOptions train_with(std::string_view content, const std::string& line = "") {
    return std::get<TrainOptions>(parse("train --config " + file(content) + " " + line));
  }
  void refuse_file(std::string_view content, std::initializer_list<std::string_view> facts) {
    const std::string message =
        expect_error<UsageError>([&] { train_with(content, "--data d"); }, facts);
    EXPECT_NE(message.find(directory_.path("run.toml")), std::string::npos) << message;
  }

  TemporaryDirectory directory_;
};

TEST_F(Config, KeysAreOptions) {
  const TrainOptions o = train_with(
      "# a run\n"
      "data = [\"a b\", 'c#d']  # two\n"
      "steps = 12\n"
      "global_batch = 64\n"
      "learning-rate = 3e-4\n"
      "\n"
      "[train]\n"
      "micro-batch = 8\n"
      "metrics = \"out, 1.jsonl\"\n");
  EXPECT_EQ(o.data.paths, (std::vector<std::string>{"a b", "c#d"}));
  EXPECT_EQ(o.steps, 12);
  EXPECT_EQ(o.learning_rate.steps, 12);
  EXPECT_EQ(o.global_batch, 64);
  EXPECT_EQ(o.learning_rate.peak, 3e-4);
  EXPECT_EQ(o.micro_batch, 8);
  EXPECT_EQ(o.metrics, "out, 1.jsonl");
}

TEST_F(Config, TheCommandLineOverridesTheFile) {
  const std::string content = "data = [\"a\", \"b\"]\nsteps = 12\nseed = 3\n";
  const TrainOptions o = train_with(content, "--steps 5 --data c");
  EXPECT_EQ(o.steps, 5);
  EXPECT_EQ(o.data.paths, std::vector<std::string>{"c"});
  EXPECT_EQ(o.seed, 3u);
}

TEST_F(Config, TheCommandsSectionGoesBeforeTheTopAndOthersAreLeft) {
  const TrainOptions o = train_with(
      "data = \"d\"\nsteps = 1\n[verify]\nsteps = 2\nplant = \"tensor=x\"\n[train]\nsteps = 3\n");
  EXPECT_EQ(o.steps, 3);
  const auto verified = std::get<VerifyOptions>(
      parse("verify --config " + file("[verify]\nsteps = 2\naccumulation = [1, 2]\n")));
  EXPECT_EQ(verified.steps, 2);
  EXPECT_EQ(verified.accumulation, (std::vector<std::int64_t>{1, 2}));
}

TEST_F(Config, EveryOptionIsAKey) {
  // Every option of the help, with a value that is right for it.
  const std::string help = std::get<Text>(parse("train --help")).text;
  std::istringstream lines(help);
  int keys = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  --"))
      continue;
    const std::string name = line.substr(4, line.find(' ', 4) - 4);
    if (name == "config")
      continue;
    std::string value = "1";
    if (name == "model")
      value = "mlp";
    if (name == "strategy")
      value = "ddp";
    if (name == "precision")
      value = "f64";
    if (name == "optimizer")
      value = "sgd";
    if (name == "schedule")
      value = "constant";
    if (name == "progress")
      value = "none";
    if (name == "transport")
      value = "shared";
    if (name == "explain" || name == "reproducible" || name == "dry-run" ||
        name == "reshard-after-forward" || name == "sequence-parallel")
      value = "true";
    if (name == "mesh")
      value = "dp=2,pp=2,tp=2";
    if (name == "pipeline-schedule")
      value = "zb-h1";
    if (name == "offload")
      value = "optimizer";
    if (name == "offload-to")
      value = "host";
    if (name == "reduce-gradients")
      value = "once";
    if (name == "loss-scaling")
      value = "static";
    if (name == "dump-step") {
      EXPECT_NO_THROW(train_with("dump-step = [\"1\", \"d\"]\n", "--data d")) << name;
      continue;
    }
    if (name == "device")
      value = "A100-80GB";
    if (name == "host-link" || name == "file-link")
      value = "1GB/s";
    if (name.starts_with("beta") || name == "momentum" || name == "validation-fraction" ||
        name == "dropout")
      value = "0.5";
    const bool real = name == "dry-run" || name == "memory-timeline" || name == "metrics";
    const std::string beside = name == "data" ? "" : real ? "--data d" : "--data d --dry-run";
    EXPECT_NO_THROW(train_with(name + " = \"" + value + "\"\n", beside)) << name;
    ++keys;
  }
  EXPECT_GE(keys, 35);
}

TEST_F(Config, UnknownKeysAndSectionsNameTheNearest) {
  refuse_file("learning_rat = 1\n", {"learning-rat", "did you mean learning-rate?"});
  refuse_file("[train]\nstep = 1\n", {"step", "did you mean steps?"});
  refuse_file("[trian]\nsteps = 1\n", {"[trian]", "did you mean [train]?"});
  refuse_file("[train.model]\nlayers = 1\n", {"tables within tables"});
  refuse_file("config = \"x\"\n", {"config: unknown key"});
  refuse_file("help = true\n", {"help: unknown key"});
}

TEST_F(Config, ValuesAreCheckedAndTheFileIsNamed) {
  refuse_file("steps = 0\n", {"--steps", "'0'", "1 or more"});
  refuse_file("learning-rate = -1\n", {"--learning-rate", "'-1'", "above 0"});
  refuse_file("device-memory = \"lots\"\n", {"--device-memory", "lots"});
  refuse_file("steps = [1, 2]\n", {"steps", "one value", "2"});
  refuse_file("steps = 1\nseed = 1\nsteps = 2\n", {"steps", "twice"});
  refuse_file("metrics = \"\"\n", {"--metrics", "missing"});
}

TEST_F(Config, WhatIsNotTomlIsRefusedWithItsLine) {
  refuse_file("seed = 1\nsteps 5\n", {"line 2", "steps 5", "key = value"});
  refuse_file("steps =\n", {"line 1", "no value"});
  refuse_file("= 5\n", {"line 1", "no key"});
  refuse_file("data = [\"a\",\n\"b\"\n", {"never closed"});
  refuse_file("metrics = \"open\n", {"metrics", "quote"});
}

TEST_F(Config, AMissingFileIsNamed) {
  expect_error<UsageError>([&] { parse("train --config " + directory_.path("none.toml")); },
                           {"--config", directory_.path("none.toml"), "No such file"});
  expect_error<UsageError>([&] { parse("train --config " + directory_.path()); },
                           {"--config", "directory"});
}

}  // namespace
}  // namespace ringworld
