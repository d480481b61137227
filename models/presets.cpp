#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/gpt2.h"
#include "models/llama.h"
#include "models/mlp.h"
#include "models/model.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {

namespace {

// What Llama has beside the sizes that all models have.
struct LlamaSizes {
  std::int64_t kv_heads;
  std::int64_t hidden;
  double rope_theta;
  bool tied = false;
};

struct Preset {
  std::string_view name;
  std::int64_t layers;
  std::int64_t heads;  // 0: the model has no attention
  std::int64_t width;
  std::int64_t vocabulary;
  std::int64_t context;  // 0: any length will do
  std::unique_ptr<Model> (*make)(const ModelOptions& dimensions, DType dtype,
                                 const TensorParallel* tensor);
  std::optional<LlamaSizes> llama = {};
};

// A new model is one row here and one file beside it. The sizes of gpt2 to gpt2-xl and of Llama are
// those of the published checkpoints; contexts are those before any scaling of rotary positions.
constexpr Preset presets[] = {
    // name, layers, heads, width, vocabulary, context; kv_heads, hidden, rope_theta, tied
    {"gpt2-tiny", 4, 4, 128, 256, 128, make_gpt2},
    {"gpt2", 12, 12, 768, 50257, 1024, make_gpt2},
    {"gpt2-medium", 24, 16, 1024, 50257, 1024, make_gpt2},
    {"gpt2-large", 36, 20, 1280, 50257, 1024, make_gpt2},
    {"gpt2-xl", 48, 25, 1600, 50257, 1024, make_gpt2},
    {"llama-tiny", 4, 4, 128, 256, 128, make_llama, LlamaSizes{2, 352, 1e4}},
    {"tinyllama-1.1b", 22, 32, 2048, 32000, 2048, make_llama, LlamaSizes{4, 5632, 1e4}},
    {"llama-2-7b", 32, 32, 4096, 32000, 4096, make_llama, LlamaSizes{32, 11008, 1e4}},
    {"llama-2-13b", 40, 40, 5120, 32000, 4096, make_llama, LlamaSizes{40, 13824, 1e4}},
    {"llama-2-70b", 80, 64, 8192, 32000, 4096, make_llama, LlamaSizes{8, 28672, 1e4}},
    {"llama-3-8b", 32, 32, 4096, 128256, 8192, make_llama, LlamaSizes{8, 14336, 5e5}},
    {"llama-3-70b", 80, 64, 8192, 128256, 8192, make_llama, LlamaSizes{8, 28672, 5e5}},
    {"llama-3-405b", 126, 128, 16384, 128256, 8192, make_llama, LlamaSizes{8, 53248, 5e5}},
    {"llama-3.2-1b", 16, 32, 2048, 128256, 8192, make_llama, LlamaSizes{8, 8192, 5e5, true}},
    {"mlp", 2, 0, 128, 256, 0, make_mlp},
};

const Preset& find_preset(const std::string& name) {
  const auto* found = std::ranges::find(presets, name, &Preset::name);
  if (found == std::end(presets)) {
    const std::vector<std::string> names = model_names();
    throw UsageError(fmt::format("unknown model \"{}\"; did you mean \"{}\"? The models are {}",
                                 name, nearest(name, names), fmt::join(names, ", ")));
  }
  return *found;
}

// A matrix's sides are 32-bit integers in BLAS, and a block's are up to four widths; the number of
// layers only has to be sane.
constexpr std::int64_t largest_side = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t largest_width = largest_side / 4;
constexpr std::int64_t most_layers = 1000;

// The asked size, else the preset's.
std::int64_t choose(const std::string& model, std::string_view what, std::int64_t asked,
                    std::int64_t preset, std::int64_t largest) {
  if (asked < 0 || asked > largest) {
    throw UsageError(
        fmt::format("model {}: {} is {}; it must be from 1 to {}", model, what, asked, largest));
  }
  if (preset == 0 && asked != 0) {
    throw UsageError(fmt::format("model {} has no {}; leave it out", model, what));
  }
  return asked != 0 ? asked : preset;
}

// "6 or 8": the divisors of `whole` that are nearest to `count`.
std::string nearest_divisors(std::int64_t count, std::int64_t whole) {
  std::int64_t fewer = std::min(count, whole);
  while (whole % fewer != 0) {
    --fewer;
  }
  std::int64_t more = count;
  while (more < whole && whole % more != 0) {
    ++more;
  }
  return more <= whole ? fmt::format("{} or {}", fewer, more) : fmt::format("{}", fewer);
}

void check_heads(const ModelOptions& dimensions) {
  const std::int64_t heads = dimensions.heads;
  const std::int64_t kv_heads = dimensions.kv_heads;
  const std::int64_t width = dimensions.width;
  if (width % heads != 0) {
    throw UsageError(fmt::format(
        "model {}: {} heads do not divide width {}; the nearest numbers of heads that do: {}",
        dimensions.name, heads, width, nearest_divisors(heads, width)));
  }
  if (heads % kv_heads != 0) {
    throw UsageError(fmt::format(
        "model {}: {} kv-heads do not divide {} heads; the nearest numbers of kv-heads that do: {}",
        dimensions.name, kv_heads, heads, nearest_divisors(kv_heads, heads)));
  }
  if (dimensions.rope_theta != 0 && width / heads % 2 != 0) {
    throw UsageError(fmt::format(
        "model {}: width {} over {} heads makes heads of size {}, but rotary positions turn pairs "
        "of elements; use a width that is a multiple of {}",
        dimensions.name, width, heads, width / heads, 2 * heads));
  }
}

// Sets what only Llama has, or refuses it.
void choose_llama(ModelOptions& d, const Preset& preset) {
  const std::optional<LlamaSizes>& llama = preset.llama;
  d.kv_heads = choose(d.name, "kv-heads", d.kv_heads, llama ? llama->kv_heads : 0, largest_width);
  if (!llama) {
    if (d.rope_theta != 0 || d.tied) {
      throw UsageError(fmt::format(
          "model {} has no rotary positions, and no choice of a tied head; leave them out",
          d.name));
    }
    d.kv_heads = d.heads;
    return;
  }
  if (d.dropout > 0) {
    throw UsageError(fmt::format("model {} has no dropout, but {} is asked for; leave it out",
                                 d.name, d.dropout));
  }
  if (!(d.rope_theta >= 0 && std::isfinite(d.rope_theta))) {
    throw UsageError(
        fmt::format("model {}: rope_theta is {}; it must be above 0", d.name, d.rope_theta));
  }
  d.rope_theta = d.rope_theta != 0 ? d.rope_theta : llama->rope_theta;
  d.tied = d.tied.value_or(llama->tied);
}

// Tensor parallelism gives every device the same number of heads, and of hidden units.
void check_split(const ModelOptions& dimensions, int devices) {
  const auto check = [&](std::string_view what, std::int64_t count) {
    if (count % devices != 0) {
      throw UsageError(
          fmt::format("model {}: {} {} cannot be divided over {} tensor ranks; use tensor ranks "
                      "that divide them",
                      dimensions.name, count, what, devices));
    }
  };
  check("heads", dimensions.heads);
  check("kv-heads", dimensions.kv_heads);
  check("hidden units of the feed-forward layers", dimensions.hidden);
}

}  // namespace

std::unique_ptr<Model> make_model(const ModelOptions& options, DType dtype,
                                  const TensorParallel* tensor) {
  const Preset& preset = find_preset(options.name);
  const std::string& name = options.name;
  ModelOptions d = options;
  d.layers = choose(name, "layers", options.layers, preset.layers, most_layers);
  d.heads = choose(name, "heads", options.heads, preset.heads, largest_width);
  d.width = choose(name, "width", options.width, preset.width, largest_width);
  d.vocabulary = choose(name, "vocabulary", options.vocabulary, preset.vocabulary, largest_side);
  d.context = choose(name, "context", options.context, preset.context, largest_side);
  const std::int64_t hidden = preset.llama ? preset.llama->hidden : 4 * d.width;
  d.hidden = choose(name, "hidden", options.hidden, hidden,
                    preset.llama ? largest_side / 2 : largest_side);  // gate and up are one matrix
  choose_llama(d, preset);
  if (d.heads != 0) {
    check_heads(d);
  }
  if (!(d.dropout >= 0 && d.dropout < 1)) {
    throw UsageError(fmt::format(
        "model {}: dropout is {}; it is a probability, from 0 to less than 1", name, d.dropout));
  }
  if (d.recompute_attention && d.heads == 0) {
    throw UsageError(
        fmt::format("model {} has no attention that could be computed again in backward", name));
  }
  if (tensor != nullptr) {
    check_split(d, tensor->size());
  }
  return preset.make(d, dtype, tensor);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) {
    names.emplace_back(preset.name);
  }
  return names;
}

}  // namespace ringworld
