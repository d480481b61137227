#include "cli/plan_setup.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/help_formatter.h"
#include "planner/hardware.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr std::int64_t usual_longest = 4096;

class Settling {
 public:
  explicit Settling(const PlannedTraining& asked) : asked_(asked) {
    ModelAnswer model = answer(asked.model);
    setup_.model = std::move(model.model);
    setup_.stated = std::move(model.stated);
    setup_.layout = asked.layout;
    settle_parallelism();
    settle_batch();
    settle_precision(model.precision);
    settle_hardware();
    if (const std::string why = refusal(setup_.layout, setup_.model, asked.gpus); !why.empty()) {
      throw UsageError(fmt::format("plan: {}", why));
    }
  }
  PlanSetup result() { return std::move(setup_); }

 private:
  void say(std::string what, std::string value, std::string source) {
    setup_.stated.push_back({std::move(what), std::move(value), std::move(source)});
  }
  // An option, or its default.
  void say(std::string what, std::int64_t asked, std::int64_t usual) {
    const std::string option = fmt::format("--{}", what);
    say(std::move(what), fmt::format("{}", asked),
        asked == usual ? fmt::format("default; {}", option) : option);
  }

  void settle_parallelism() {
    Layout& l = setup_.layout;
    const std::int64_t others = l.tensor * l.pipeline * l.context;
    std::string source = "--data";
    if (l.data == 0) {
      if (asked_.gpus > 0 && asked_.gpus % others != 0) {
        const std::int64_t fewer = asked_.gpus / others * others;
        throw UsageError(fmt::format(
            "--gpus: '{}': tensor {} x pipeline {} x context {} = {} does not divide them; the "
            "nearest that it divides: {}{}",
            asked_.gpus, l.tensor, l.pipeline, l.context, others,
            fewer > 0 ? fmt::format("{} or ", fewer) : std::string(), fewer + others));
      }
      l.data = asked_.gpus > 0 ? asked_.gpus / others : 1;
      source =
          asked_.gpus > 0 ? "--gpus / (tensor x pipeline x context)" : "default; --data, --gpus";
    }
    say("GPUs", fmt::format("{}", l.gpus()), asked_.gpus > 0 ? "--gpus" : "product of the degrees");
    say("data", fmt::format("{}", l.data), source);
    say("tensor", l.tensor, 1);
    say("pipeline", l.pipeline, 1);
    if (l.context > 1) {
      say("context-parallel", l.context, 1);
    }
    if (setup_.model.experts) {
      say("expert", l.expert, 1);
    }
    const bool named = !l.schedule.empty();
    if (!named) {
      l.schedule = l.chunks > 1 ? "interleaved-1f1b" : "1f1b";
    }
    if (l.pipeline > 1) {
      say("schedule", l.schedule, named ? "--schedule" : "default; --schedule");
      say("chunks", l.chunks, 1);
    }
    if (l.tensor > 1) {
      say("sequence parallel", l.sequence_parallel ? "yes" : "no",
          l.sequence_parallel ? "--sequence-parallel" : "default; --sequence-parallel");
    }
    say("sharding", std::string(name_of(l.sharding)),
        l.sharding == Sharding::none ? "default; --sharding" : "--sharding");
    if (l.shard_group > 0) {
      say("shard-group", l.shard_group, 0);
    }
  }

  void settle_batch() {
    Layout& l = setup_.layout;
    say("micro-batch", l.micro_batch, 1);
    std::string source = "--global-batch";
    if (l.global_batch == 0) {
      l.global_batch = l.data * l.micro_batch * l.pipeline;
      source = "default: a micro-batch for each rank and stage; --global-batch";
    }
    say("global batch", fmt::format("{}", l.global_batch), source);
    source = "--sequence-length";
    if (l.sequence_length == 0) {
      l.sequence_length = std::min(setup_.model.context, usual_longest);
      source = "default: the context, at most 4096; --sequence-length";
    }
    say("sequence length", fmt::format("{}", l.sequence_length), source);
    say("recompute", std::string(name_of(l.recompute)),
        l.recompute == Recompute::none ? "default; --recompute" : "--recompute");
    if (l.offload != PlannedOffload::none) {
      say("offload",
          fmt::format("{} to {}", name_of(l.offload), l.offload_to_file ? "a file" : "the host"),
          "--offload, --offload-to");
    }
  }

  void settle_precision(const std::optional<DType>& of_model) {
    Layout& l = setup_.layout;
    std::string source = "--dtype";
    if (asked_.precision) {
      l.precision = *asked_.precision;
      source += of_model ? fmt::format("; the model's file says {}", name_of(*of_model)) : "";
    } else if (of_model) {
      l.precision = *of_model;
      source = "the model's file; --dtype";
    } else {
      l.precision = DType::bf16;
      source = "default; --dtype";
    }
    say("precision", std::string(name_of(l.precision)), source);
    l.gradient_precision = asked_.gradient_precision.value_or(gradient_dtype(l.precision));
    say("gradients in", std::string(name_of(l.gradient_precision)),
        asked_.gradient_precision ? "--gradient-dtype" : "default; --gradient-dtype");
    const MemoryOptions& memory = asked_.memory;
    constexpr const char* optimizers[] = {"SGD", "SGD with momentum", "AdamW"};
    say("optimizer", optimizers[memory.optimizer_states],
        memory.optimizer_states == 2 ? "default; --optimizer" : "--optimizer");
    say("attention", memory.activations.fused_attention ? "fused" : "scores kept",
        memory.activations.fused_attention ? "default; --attention" : "--attention");
    say("dropout masks", memory.activations.dropout ? "kept" : "none",
        memory.activations.dropout ? "--dropout-masks" : "default; --dropout-masks");
    const std::int64_t rows =
        padded_vocabulary(setup_.model.vocabulary, l.tensor, memory.pad_vocabulary);
    if (rows != setup_.model.vocabulary) {
      say("vocabulary rows", fmt::format("{}", rows),
          fmt::format("{} in multiples of {} for each of {} tensor ranks; --pad-vocabulary",
                      setup_.model.vocabulary, memory.pad_vocabulary, l.tensor));
    }
  }

  void settle_hardware() {
    if (!asked_.gpu.empty()) {
      Machines machines;
      if (!asked_.hardware.empty()) {
        machines.read(asked_.hardware);
      }
      const Machine& gpu = machines.find(asked_.gpu);
      setup_.device = gpu.name;
      setup_.budget = Bytes(static_cast<std::int64_t>(gpu.memory.value));
      say("GPU", fmt::format("{}, {}", gpu.name, to_string(setup_.budget)), gpu.memory.source);
    }
    if (asked_.gpu_memory.value > 0) {
      setup_.budget = asked_.gpu_memory;
      setup_.device = setup_.device.empty() ? "a GPU" : setup_.device;
      say("GPU memory", to_string(asked_.gpu_memory), "--gpu-memory");
    }
  }

  const PlannedTraining& asked_;
  PlanSetup setup_;
};

}  // namespace

PlanSetup settle(const PlannedTraining& training) {
  return Settling(training).result();
}

std::string stated_table(const std::vector<Stated>& stated) {
  constexpr std::size_t widest = 100;
  std::size_t left = 0;
  std::size_t middle = 0;
  for (const Stated& value : stated) {
    left = std::max(left, value.what.size());
    middle = std::max(middle, value.value.size());
  }
  std::string text;
  for (const Stated& value : stated) {
    const std::size_t indent = left + middle + 4;
    text += fmt::format("{:<{}}  {:<{}}  {}\n", value.what, left, value.value, middle,
                        wrap(value.source, widest - indent, indent));
  }
  return text;
}

}  // namespace ringworld
