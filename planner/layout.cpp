#include "planner/layout.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/pipeline_schedule.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

// "4 or 8": the divisors of `whole` on either side of `asked`.
std::string nearest_divisors(std::int64_t whole, std::int64_t asked) {
  std::int64_t below = std::min(asked, whole);
  while (below > 1 && whole % below != 0) {
    --below;
  }
  std::int64_t above = asked;
  while (above < whole && whole % above != 0) {
    ++above;
  }
  return above > whole || above == below ? fmt::format("{}", std::max<std::int64_t>(below, 1))
                                         : fmt::format("{} or {}", below, above);
}

std::string does_not_divide(std::string_view degree, std::int64_t asked, std::string_view what,
                            std::int64_t whole) {
  return fmt::format("{} {} does not divide {} {}; the nearest that do: {}", degree, asked, whole,
                     what, nearest_divisors(whole, asked));
}

std::string refuse_degrees(const Layout& l) {
  const std::pair<std::string_view, std::int64_t> degrees[] = {{"data", l.data},
                                                               {"tensor", l.tensor},
                                                               {"pipeline", l.pipeline},
                                                               {"context", l.context},
                                                               {"expert", l.expert},
                                                               {"chunks", l.chunks},
                                                               {"micro-batch", l.micro_batch}};
  for (const auto& [name, degree] : degrees) {
    if (degree < 1) {
      return fmt::format("{} is {}; it is at least 1", name, degree);
    }
  }
  return "";
}

std::string refuse_tensor(const Layout& l, const Transformer& model) {
  if (model.heads % l.tensor != 0) {
    return does_not_divide("tensor", l.tensor, "heads", model.heads);
  }
  if (!model.latent && model.kv_heads % l.tensor != 0 && l.tensor % model.kv_heads != 0) {
    return fmt::format(
        "tensor {} and {} heads of keys and values: neither divides the other; the nearest that "
        "divide: {}",
        l.tensor, model.kv_heads, nearest_divisors(model.kv_heads, l.tensor));
  }
  if (model.hidden % l.tensor != 0) {
    return does_not_divide("tensor", l.tensor, "hidden elements of the feed-forward part",
                           model.hidden);
  }
  if (model.experts && model.experts->hidden % l.tensor != 0) {
    return does_not_divide("tensor", l.tensor, "hidden elements of an expert",
                           model.experts->hidden);
  }
  if (l.sequence_parallel && l.tensor == 1) {
    return "sequence parallelism divides what tensor parallelism leaves whole, but tensor is 1; "
           "ask "
           "for more, or leave it out";
  }
  return "";
}

std::string refuse_pipeline(const Layout& l, const Transformer& model) {
  const std::int64_t parts = l.pipeline * l.chunks;
  if (!l.stage_layers.empty()) {
    const std::int64_t sum = std::accumulate(l.stage_layers.begin(), l.stage_layers.end(), 0LL);
    if (std::ssize(l.stage_layers) != l.pipeline || sum != model.layers || l.chunks != 1 ||
        std::ranges::min(l.stage_layers) < 0) {
      return fmt::format(
          "stage layers {} are {} stages of {} layers; asked for are pipeline {}, chunks {} and "
          "{} layers, and only stages of one chunk can be given",
          fmt::join(l.stage_layers, ","), l.stage_layers.size(), sum, l.pipeline, l.chunks,
          model.layers);
    }
  }
  if (parts > model.layers) {
    return fmt::format(
        "pipeline {} x chunks {} are {} parts, but {} has {} layers: some would have none",
        l.pipeline, l.chunks, parts, model.name, model.layers);
  }
  const PipelineKind& kind = find_pipeline(l.schedule);
  const PipelineShape shape{.stages = static_cast<int>(l.pipeline),
                            .micro_batches = static_cast<int>(l.micro_batches()),
                            .chunks = static_cast<int>(l.chunks)};
  if (l.pipeline == 1) {
    return l.chunks == 1 ? ""
                         : fmt::format(
                               "chunks {} on one pipeline stage: there is no pipeline to "
                               "shorten; leave them out, or ask for pipeline 2 or more",
                               l.chunks);
  }
  const std::string reason = kind.refuses(shape);
  return reason.empty() ? ""
                        : fmt::format(
                              "schedule {} cannot serve pipeline {}, chunks {} and {} "
                              "micro-batches: {}",
                              l.schedule, l.pipeline, l.chunks, shape.micro_batches, reason);
}

std::string refuse_experts(const Layout& l, const Transformer& model) {
  if (l.expert == 1) {
    return "";
  }
  if (!model.experts) {
    return fmt::format("expert {}: {} has no experts", l.expert, model.name);
  }
  if (model.experts->count % l.expert != 0) {
    return does_not_divide("expert", l.expert, "experts", model.experts->count);
  }
  if ((l.data * l.context) % l.expert != 0) {
    return does_not_divide("expert", l.expert,
                           "ranks (data x context), over which experts are spread",
                           l.data * l.context);
  }
  return "";
}

std::string refuse_batch(const Layout& l, const Transformer& model) {
  if (l.sequence_length < 1) {
    return fmt::format("sequence length is {}; it is at least 1", l.sequence_length);
  }
  // Beyond these no sum of bytes is sure to fit 64 bits.
  constexpr std::int64_t most_tokens = std::int64_t{1} << 28;
  constexpr std::int64_t most_micro_batches = 1'000'000;
  if (l.micro_batch > most_tokens / l.sequence_length) {
    return fmt::format("micro-batch {} of sequences of {} tokens: more than {} tokens at once",
                       l.micro_batch, l.sequence_length, most_tokens);
  }
  if (l.micro_batches() > most_micro_batches) {
    return fmt::format("global batch {}: more than {} micro-batches for a rank", l.global_batch,
                       most_micro_batches);
  }
  if (model.learned_positions && l.sequence_length > model.context) {
    return fmt::format("sequence length {}: {} has positions for {}", l.sequence_length, model.name,
                       model.context);
  }
  const std::int64_t cut = l.context * (l.sequence_parallel ? l.tensor : 1);
  if (l.sequence_length % cut != 0) {
    return fmt::format(
        "sequence length {} does not divide over {} ranks (context x, with sequence "
        "parallelism, tensor); the nearest that do: {}{}",
        l.sequence_length, cut,
        l.sequence_length > cut ? fmt::format("{} or ", l.sequence_length / cut * cut)
                                : std::string(),
        (l.sequence_length / cut + 1) * cut);
  }
  const std::int64_t at_once = l.data * l.micro_batch;
  if (l.global_batch != 0 && (l.global_batch < 0 || l.global_batch % at_once != 0)) {
    const std::int64_t below = std::max(at_once, l.global_batch / at_once * at_once);
    return fmt::format(
        "global batch {} is not a multiple of data {} x micro-batch {} = {}; the nearest that "
        "are: "
        "{} or {}",
        l.global_batch, l.data, l.micro_batch, at_once, below, below + at_once);
  }
  return "";
}

std::string refuse_sharding(const Layout& l) {
  const std::int64_t ranks = l.data * l.context;
  if (l.shard_group < 0 || (l.shard_group > 0 && ranks % l.shard_group != 0)) {
    return does_not_divide("shard group", l.shard_group, "ranks (data x context)", ranks);
  }
  if (l.shard_group > 0 && l.sharding == Sharding::none) {
    return fmt::format("shard group {}: nothing is sharded; ask for zero1, zero2 or zero3",
                       l.shard_group);
  }
  if (l.offload == PlannedOffload::parameters && l.sharding != Sharding::zero3) {
    return fmt::format(
        "offload parameters with {}: only zero3 gathers weights when they are needed",
        name_of(l.sharding));
  }
  if (l.offload_to_file && l.offload == PlannedOffload::none) {
    return "offload to a file: nothing is offloaded; ask for optimizer, master or parameters";
  }
  return "";
}

}  // namespace

std::string_view name_of(Sharding sharding) {
  constexpr std::string_view names[] = {"none", "zero1", "zero2", "zero3"};
  return names[static_cast<std::size_t>(sharding)];
}

Sharding parse_sharding(std::string_view text, std::string_view option) {
  for (const Sharding sharding : all_shardings) {
    if (name_of(sharding) == text) {
      return sharding;
    }
  }
  if (text == "ddp") {
    return Sharding::none;
  }
  if (text == "fsdp") {
    return Sharding::zero3;
  }
  throw UsageError(fmt::format(
      "{}: '{}': unknown sharding; there are: none (or ddp), zero1, zero2, zero3 (or fsdp)", option,
      text));
}

std::string_view name_of(Recompute recompute) {
  constexpr std::string_view names[] = {"none", "selective", "full"};
  return names[static_cast<std::size_t>(recompute)];
}

std::string_view name_of(PlannedOffload offload) {
  constexpr std::string_view names[] = {"none", "optimizer", "master", "parameters"};
  return names[static_cast<std::size_t>(offload)];
}

std::int64_t Layout::micro_batches() const {
  return global_batch == 0 ? 1 : global_batch / (data * micro_batch);
}

std::string describe(const Layout& l) {
  std::vector<std::string> degrees{fmt::format("DP {}", l.data)};
  const std::pair<std::string_view, std::int64_t> others[] = {
      {"TP", l.tensor}, {"PP", l.pipeline}, {"CP", l.context}};
  for (const auto& [name, degree] : others) {
    if (degree > 1) {
      degrees.push_back(fmt::format("{} {}", name, degree));
    }
  }
  std::string text = fmt::format("{}", fmt::join(degrees, " x "));
  text += l.chunks > 1 ? fmt::format(", {} chunks", l.chunks) : "";
  text += l.expert > 1 ? fmt::format(", EP {}", l.expert) : "";
  text += l.sequence_parallel ? ", SP" : "";
  text += l.sharding != Sharding::none ? fmt::format(", {}", name_of(l.sharding)) : "";
  text += l.shard_group > 0 ? fmt::format(" over {}", l.shard_group) : "";
  text += fmt::format(", micro-batch {}", l.micro_batch);
  text +=
      l.recompute != Recompute::none ? fmt::format(", {} recomputation", name_of(l.recompute)) : "";
  text += l.offload != PlannedOffload::none
              ? fmt::format(", {} offloaded to {}", name_of(l.offload),
                            l.offload_to_file ? "a file" : "the host")
              : "";
  return text;
}

std::string refusal(const Layout& l, const Transformer& model, std::int64_t gpus) {
  if (std::string reason = refuse_degrees(l); !reason.empty()) {
    return reason;
  }
  if (gpus != 0 && l.gpus() != gpus) {
    const std::int64_t others = l.tensor * l.pipeline * l.context;
    return fmt::format(
        "data {} x tensor {} x pipeline {} x context {} = {}, but there are {} GPUs; {}", l.data,
        l.tensor, l.pipeline, l.context, l.gpus(), gpus,
        gpus % others == 0
            ? fmt::format("data {} would use them all", gpus / others)
            : fmt::format("tensor x pipeline x context = {} does not divide them", others));
  }
  for (const std::string& reason :
       {refuse_tensor(l, model), refuse_batch(l, model), refuse_pipeline(l, model),
        refuse_experts(l, model), refuse_sharding(l)}) {
    if (!reason.empty()) {
      return reason;
    }
  }
  return "";
}

LayerRange layers_of_part(std::int64_t layers, std::int64_t parts, std::int64_t part) {
  const std::int64_t each = layers / parts;
  const std::int64_t more = layers % parts;
  const auto first = [&](std::int64_t i) { return i * each + std::min(i, more); };
  return {first(part), first(part + 1)};
}

}  // namespace ringworld
