#include "cli/training_groups.h"

#include <vector>

#include <fmt/format.h>

namespace ringworld {
namespace {

// "25GB/s", in bytes per second.
double parse_bandwidth(const OptionSet& set, const std::string& name, const std::string& text) {
  if (!text.ends_with("/s")) {
    set.refuse(name, text, "a bandwidth is a size per second, for example 25GB/s");
  }
  return static_cast<double>(parse_bytes(text.substr(0, text.size() - 2), "--" + name).value);
}

constexpr DType precisions[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

}  // namespace

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

void declare_sharding(OptionSet& set, StrategyOptions& strategy) {
  set.choice("reduce-gradients", strategy.reduce_gradients, all_reduce_gradients,
             "zero2, fsdp: reduce gradients once per optimizer step, which holds them whole, or in "
             "every micro-batch, which keeps shards only. auto is the latter, for zero1 once.");
  set.integer("shard-group", strategy.shard_group, 0, "RANKS",
              "Shard within groups of so many neighbours, and replicate across; 0 is all ranks.");
}

void declare_strategy(OptionSet& set, StrategyOptions& strategy, ResourceOptions& resources) {
  set.size("bucket", strategy.bucket,
           "ddp: gradients are reduced in buckets of about this size, while backward goes on.");
  declare_sharding(set, strategy);
  set.boolean("reshard-after-forward", strategy.reshard_after_forward,
              "fsdp: release parameters after forward and gather them again for backward.");
  set.integer("prefetch", strategy.prefetch, 0, "UNITS",
              "fsdp: units whose parameters are gathered while one computes.");
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

std::string to_string(const Recomputation& recomputation) {
  if (recomputation.attention) {
    return "selective";
  }
  return recomputation.checkpoint == 0 ? "none" : std::to_string(recomputation.checkpoint);
}

}  // namespace ringworld
