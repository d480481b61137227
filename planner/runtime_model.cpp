#include "planner/runtime_model.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

bool is_gpt2(const Transformer& m) {
  return m.norm == NormKind::layer && !m.gated_mlp && m.tied_head && m.learned_positions &&
         m.linear_bias && m.query_key_value_bias && m.kv_heads == m.heads;
}

bool is_llama(const Transformer& m) {
  return m.norm == NormKind::rms && m.gated_mlp && !m.learned_positions && !m.linear_bias &&
         !m.query_key_value_bias;
}

bool is_llama_of_runtime(const std::string& name) {
  const std::vector<std::string> names = model_names();
  return std::ranges::find(names, name) != names.end() &&
         std::ranges::any_of(transformer_presets(), [&](const Transformer& preset) {
           return preset.name == name && is_llama(preset);
         });
}

std::string refuse_layout(const Layout& l) {
  if (l.context * l.expert != 1) {
    return "our runtime has data, tensor and pipeline parallelism; context and expert are 1";
  }
  if (l.shard_group != 0) {
    return "this accounting is of shards over all data-parallel ranks; leave out the shard group";
  }
  if (l.gradient_precision != gradient_dtype(l.precision)) {
    return fmt::format("gradients in {}: our runtime has them in {} beside {} weights",
                       name_of(l.gradient_precision), name_of(gradient_dtype(l.precision)),
                       name_of(l.precision));
  }
  return refusal(runtime_parallel(l), static_cast<int>(l.gpus()),
                 static_cast<int>(l.micro_batches()));
}

}  // namespace

std::string runtime_refusal(const Transformer& m, const Layout& l) {
  if (m.experts || m.latent || m.head_size * m.heads != m.width || !(is_gpt2(m) || is_llama(m))) {
    return fmt::format(
        "{} is neither a GPT-2 nor a Llama, and our runtime trains no other transformer", m.name);
  }
  if (std::string why = refuse_layout(l); !why.empty()) {
    return why;
  }
  try {
    check_parallel_model(runtime_model(m, l), l.precision, runtime_parallel(l));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

ModelOptions runtime_model(const Transformer& m, const Layout& l) {
  ModelOptions options{.layers = m.layers,
                       .heads = m.heads,
                       .width = m.width,
                       .hidden = m.hidden,
                       .vocabulary = m.vocabulary,
                       .context = m.context,
                       .recompute_attention = l.recompute == Recompute::selective};
  if (is_gpt2(m)) {
    options.name = "gpt2";
    return options;
  }
  // Sizes are all given, but the base of rotary positions is the preset's.
  options.name = is_llama_of_runtime(m.name) ? m.name : m.tied_head ? "llama-3.2-1b" : "llama-tiny";
  options.tied = m.tied_head;
  options.kv_heads = m.kv_heads;
  options.context = std::max(m.context, l.sequence_length);  // it holds no positions
  return options;
}

ParallelOptions runtime_parallel(const Layout& l) {
  const bool piped = l.pipeline > 1;
  ParallelOptions options{
      .mesh = {.data = static_cast<int>(l.data),
               .pipeline = static_cast<int>(l.pipeline),
               .tensor = static_cast<int>(l.tensor)},
      .sequence_parallel = l.sequence_parallel,
      .pipeline = {.schedule = piped ? l.schedule : "1f1b",
                   .chunks = piped ? static_cast<int>(l.chunks) : 0,
                   .layers = piped ? l.stage_layers : std::vector<std::int64_t>()}};
  options.strategy.name =
      std::string(l.sharding == Sharding::none ? std::string_view("ddp") : name_of(l.sharding));
  options.strategy.offload_parameters = l.offload == PlannedOffload::parameters;
  return options;
}

std::vector<std::int64_t> runtime_part_layers(const Transformer& m, const Layout& l) {
  const auto whole = make_model(runtime_model(m, l), l.precision);
  std::vector<std::int64_t> layers;
  for (const Part& part :
       divide_chain(*whole, static_cast<int>(l.pipeline * l.chunks), l.stage_layers)) {
    layers.push_back(part.count);
  }
  --layers.front();  // the first unit of the chain and the last one are no layers
  --layers.back();
  return layers;
}

}  // namespace ringworld
