#include <algorithm>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/gpt2.h"
#include "models/mlp.h"
#include "models/model.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {

namespace {

struct Preset {
  std::string_view name;
  std::int64_t layers;
  std::int64_t heads;  // 0: the model has no attention
  std::int64_t width;
  std::int64_t vocabulary;
  std::int64_t context;  // 0: any length will do
  std::unique_ptr<Model> (*make)(const ModelOptions& dimensions, DType dtype,
                                 const TensorParallel* tensor);
};

// A new model is one row here and one file beside it. The sizes of gpt2 to gpt2-xl are those of the
// published checkpoints.
constexpr Preset presets[] = {
    // name, layers, heads, width, vocabulary, context
    {"gpt2-tiny", 4, 4, 128, 256, 128, make_gpt2},
    {"gpt2", 12, 12, 768, 50257, 1024, make_gpt2},
    {"gpt2-medium", 24, 16, 1024, 50257, 1024, make_gpt2},
    {"gpt2-large", 36, 20, 1280, 50257, 1024, make_gpt2},
    {"gpt2-xl", 48, 25, 1600, 50257, 1024, make_gpt2},
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

void check_heads(const ModelOptions& dimensions) {
  const std::int64_t heads = dimensions.heads;
  const std::int64_t width = dimensions.width;
  if (width % heads == 0) {
    return;
  }
  std::int64_t fewer = std::min(heads, width);
  while (width % fewer != 0) {
    --fewer;
  }
  std::int64_t more = heads;
  while (more < width && width % more != 0) {
    ++more;
  }
  const std::string fitting =
      more <= width ? fmt::format("{} or {}", fewer, more) : fmt::format("{}", fewer);
  throw UsageError(fmt::format(
      "model {}: {} heads do not divide width {}; the nearest numbers of heads that do: {}",
      dimensions.name, heads, width, fitting));
}

// Tensor parallelism gives every device the same number of heads, and of hidden units.
void check_split(const ModelOptions& dimensions, int devices) {
  const auto check = [&](std::string_view what, std::int64_t count) {
    if (count % devices != 0) {
      throw UsageError(fmt::format("model {}: {} {} cannot be divided over {} tensor ranks",
                                   dimensions.name, count, what, devices));
    }
  };
  check("heads", dimensions.heads);
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
  d.hidden = choose(name, "hidden", options.hidden, 4 * d.width, largest_side);
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
