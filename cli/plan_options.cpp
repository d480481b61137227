#include "cli/plan_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/error.h"
#include "runtime/hardware.h"

namespace ringworld {
namespace {

// Names in indented lines of at most 100 characters.
std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  std::size_t used = 0;
  for (const std::string& name : names) {
    const bool first = used == 0 || used + 1 + name.size() > 100;
    list += first && used > 0 ? "\n" : "";
    list += fmt::format("{}{}", first ? "  " : " ", name);
    used = (first ? 1 : used) + 1 + name.size();
  }
  return list + "\n";
}

std::vector<std::string> accelerator_names() {
  std::vector<std::string> names;
  for (const Accelerator& accelerator : accelerators()) {
    names.emplace_back(accelerator.name);
  }
  return names;
}

// One of the words, by its place among them.
std::size_t parse_word(const OptionSet& set, const std::string& name, const std::string& text,
                       const std::vector<std::string>& known) {
  const auto found = std::ranges::find(known, text);
  if (found == known.end()) {
    set.refuse_unknown(name, text, known);
  }
  return static_cast<std::size_t>(found - known.begin());
}

// The field's other names, too.
DType parse_planned_dtype(const OptionSet& set, const std::string& name, const std::string& text) {
  constexpr std::pair<std::string_view, DType> known[] = {
      {"bf16", DType::bf16}, {"f32", DType::f32},  {"f16", DType::f16},
      {"fp32", DType::f32},  {"fp16", DType::f16}, {"f64", DType::f64}};
  std::vector<std::string> names;
  for (const auto& [word, dtype] : known) {
    if (text == word) {
      return dtype;
    }
    names.emplace_back(word);
  }
  set.refuse_unknown(name, text, names);
}

}  // namespace

void declare_model(OptionSet& set, ModelQuestion& model) {
  set.group("Model");
  set.text("model", model.preset, "NAME", "A published one; all names stand below.");
  set.text("params", model.parameters, "SIZE",
           "A size alone, such as 70B, 1.5T, 300M or 124439808: a plausible shape is made.");
  set.text("model-config", model.config, "config.json", "A model's file from Hugging Face.");
  const auto dimension = [&set](const std::string& name, std::int64_t& value, const char* what) {
    set.custom(name, "N", "the model's own", what, false,
               [&set, name, &value](const std::vector<std::string>& values) {
                 value = set.parse_integer(name, values.front(), 1);
               });
  };
  dimension("layers", model.layers, "Blocks; with --width and --heads, a model without a name.");
  dimension("width", model.width, "Features of each token between blocks.");
  dimension("heads", model.heads, "Attention heads.");
  dimension("kv-heads", model.kv_heads, "Heads of keys and values.");
  dimension("hidden", model.hidden, "Features inside the feed-forward part.");
  dimension("vocabulary", model.vocabulary, "Number of distinct tokens.");
  dimension("context", model.context, "Longest sequence, in tokens.");
  set.text("family", model.family, "gpt|llama",
           "What a model without a name is like in what dimensions do not say; default: llama.");
}

namespace {

void declare_layout(OptionSet& set, PlannedTraining& o) {
  Layout& l = o.layout;
  set.group("Layout");
  const auto count = [&set](const std::string& name, std::int64_t& value, const char* otherwise,
                            const char* what) {
    set.custom(name, "N", otherwise, what, false,
               [&set, name, &value](const std::vector<std::string>& values) {
                 value = set.parse_integer(name, values.front(), 1);
               });
  };
  count("gpus", o.gpus, "as many as the degrees' product", "GPUs in all.");
  count("data", l.data, "what --gpus leaves, else 1", "Data-parallel ranks.");
  count("tensor", l.tensor, "1", "Ranks that each layer is split over.");
  count("pipeline", l.pipeline, "1", "Stages that the layers are cut into.");
  count("context-parallel", l.context, "1", "Ranks that each sequence is cut over.");
  count("expert", l.expert, "1", "Ranks, of the data-parallel ones, that experts are spread over.");
  count("chunks", l.chunks, "1", "Parts of the model on each pipeline stage.");
  set.custom("stage-layers", "N,N,...", "as even as can be", "Layers of each pipeline stage.", true,
             [&set, &l](const std::vector<std::string>& values) {
               for (const std::string& text : split_list(values)) {
                 l.stage_layers.push_back(set.parse_integer("stage-layers", text, 0));
               }
             });
  set.custom("schedule", "NAME", "1f1b; interleaved-1f1b with chunks",
             "In which order pipeline stages work; see show pipeline.", false,
             [&set, &l](const std::vector<std::string>& values) {
               const std::vector<std::string> known = pipeline_names();
               l.schedule = known[parse_word(set, "schedule", values.front(), known)];
             });
  set.flag("sequence-parallel", l.sequence_parallel,
           "Tensor ranks share out what they would all hold.");
  set.custom("sharding", "none|zero1|zero2|zero3", "none",
             "What data-parallel ranks share out: optimizer state, gradients, weights; ddp is none "
             "and fsdp zero3.",
             false, [&l](const std::vector<std::string>& values) {
               l.sharding = parse_sharding(values.front(), "--sharding");
             });
  count("shard-group", l.shard_group, "all",
        "Data-parallel ranks that share out among themselves.");
  count("micro-batch", l.micro_batch, "1", "Sequences of one data-parallel rank at once.");
  count("global-batch", l.global_batch, "a micro-batch for each rank and pipeline stage",
        "Sequences of an optimizer step.");
  count("sequence-length", l.sequence_length, "the model's context, at most 4096",
        "Tokens of a sequence.");
  set.choice("recompute", l.recompute, all_recomputes,
             "Activations that backward computes again: attention's scores, or all of a layer.");
  set.choice("offload", l.offload, all_planned_offloads,
             "What leaves the GPU: moments; 32-bit weights, too; the sharded weights, too.");
  set.custom(
      "offload-to", "host|file", "host", "Where to.", false,
      [&set, &l](const std::vector<std::string>& values) {
        l.offload_to_file = parse_word(set, "offload-to", values.front(), {"host", "file"}) == 1;
      });
}

}  // namespace

void declare_precision(OptionSet& set, PlannedTraining& o) {
  set.group("Precision and kernels");
  const auto dtype = [&set](const std::string& name, std::optional<DType>& value,
                            const char* otherwise, const char* what) {
    set.custom(name, "bf16|f16|f32|f64", otherwise, what, false,
               [&set, name, &value](const std::vector<std::string>& values) {
                 value = parse_planned_dtype(set, name, values.front());
               });
  };
  dtype("dtype", o.precision, "the model file's, else bf16",
        "Weights and activations; whatever a model's file says.");
  dtype("gradient-dtype", o.gradient_precision, "f32; f64 beside f64",
        "Gradients: f32 as Megatron-LM and our runtime have them, bf16 as in ZeRO's paper.");
  set.custom("optimizer", "adamw|momentum|sgd", "adamw", "With two moments, one, or none.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.memory.optimizer_states = static_cast<int>(
                   parse_word(set, "optimizer", values.front(), {"sgd", "momentum", "adamw"}));
             });
  set.custom("attention", "fused|scores", "fused",
             "Whether a kernel keeps a number for each row, or attention's scores.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.memory.activations.fused_attention =
                   parse_word(set, "attention", values.front(), {"fused", "scores"}) == 0;
             });
  set.flag("dropout-masks", o.memory.activations.dropout, "Dropout's masks are kept, a byte each.");
  set.integer("pad-vocabulary", o.memory.pad_vocabulary, 1, "N",
              "Rows of the vocabulary become a multiple of N for each tensor rank; 128 in "
              "Megatron-LM.");
  set.custom(
      "reserve", "SIZE", to_string(o.memory.reserved),
      "Allowance for the GPU's context, libraries and allocator, which only measuring tells.",
      false, [&o](const std::vector<std::string>& values) {
        o.memory.reserved =
            values.front() == "0" ? Bytes(0) : parse_bytes(values.front(), "--reserve");
      });
}

std::string_view name_of(Accounting accounting) {
  return accounting == Accounting::gpu ? "gpu" : "ringworld";
}

std::string_view name_of(Convention convention) {
  constexpr std::string_view names[] = {"none", "lesson", "deepspeed", "megatron"};
  return names[static_cast<std::size_t>(convention)];
}

void declare_hardware(OptionSet& set, std::string& path) {
  set.text("hardware", path, "FILE.json",
           "Machines of your own, or other values of known ones; see docs/planner.md.");
}

void declare_planned_training(OptionSet& set, PlannedTraining& o) {
  declare_model(set, o.model);
  declare_layout(set, o);
  declare_precision(set, o);
  set.group("Hardware");
  set.text("gpu", o.gpu, "NAME", "Whether it fits this one; all names stand below.");
  set.size("gpu-memory", o.gpu_memory, "The same for so much memory.");
  declare_hardware(set, o.hardware);
}

void declare(OptionSet& set, PlanMemoryOptions& o) {
  set.usage("ringworld plan memory");
  declare_planned_training(set, o);
  set.group("Accounting");
  set.choice("accounting", o.accounting, all_accountings,
             "A GPU's, as publications count it; or what our own runtime holds, to the byte.");
  set.choice("convention", o.convention, all_conventions,
             "Another calculator's arithmetic, and where ours differs.");
  set.text("largest-layer", o.largest_layer, "SIZE",
           "deepspeed: parameters of the largest layer, where it is not the model's.");
  set.custom("gpus-per-node", "N", "all of them", "deepspeed, and host memory of a node.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.gpus_per_node = set.parse_integer("gpus-per-node", values.front(), 1);
             });
  set.integer("threads", o.threads, 1, "N", "ringworld: of each rank; workspace is theirs.");
  set.flag("verify", o.verify,
           "Hold the plan of our own runtime against its dry run; and against two real steps where "
           "as many ranks were started and the model is small.");
  set.group("Output");
  set.text("svg", o.svg, "FILE.svg", "Draw the memory of a GPU, by item, over numbers of GPUs.");
  set.text("json", o.json, "FILE.json",
           "Write everything to this file; - is standard output, instead of the text.");
  set.examples(fmt::format(
      "Models:\n{}\nGPUs:\n{}\nExamples:\n"
      "  ringworld plan memory --model llama-3-8b --gpus 8 --sharding fsdp --gpu H100-80GB\n"
      "  ringworld plan memory --params 70B --tensor 8 --pipeline 4 --sequence-parallel\n"
      "  ringworld plan memory --params 6805M --largest-layer 131M --gpus 4 --convention "
      "deepspeed\n"
      "  mpiexec -n 4 ringworld plan memory --model gpt2-tiny --gpus 4 --sharding zero2 --verify",
      list_of(transformer_names()), list_of(accelerator_names())));
}

void check(PlanMemoryOptions& o) {
  if (o.verify && o.convention != Convention::none) {
    throw UsageError(fmt::format(
        "--verify: '{}': only our own accounting can be verified; leave out --convention",
        name_of(o.convention)));
  }
  if (!o.largest_layer.empty() && o.convention != Convention::deepspeed) {
    throw UsageError("--largest-layer has a meaning only with --convention deepspeed");
  }
  if (o.verify) {
    o.accounting = Accounting::ringworld;
  }
}

}  // namespace ringworld
