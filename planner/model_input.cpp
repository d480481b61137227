#include "planner/model_input.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr double most_parameters = 1e18;
constexpr std::int64_t largest_dimension = std::int64_t{1} << 31;
constexpr std::int64_t most_layers = 100'000;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // A device may have no end.
  if (!std::filesystem::is_regular_file(path) || !file || !(text << file.rdbuf())) {
    throw DataError(fmt::format(
        "--model-config: cannot read '{}'; give the path of a model's config.json", path));
  }
  return text.str();
}

// A dimension that the user gave replaces the model's.
class Changes {
 public:
  explicit Changes(ModelAnswer& answer) : answer_(answer) {}

  // True where it was given.
  bool apply(std::string_view option, std::int64_t asked, std::int64_t& value) {
    if (asked == 0) {
      return false;
    }
    if (asked < 0 || asked > largest_dimension) {
      throw UsageError(fmt::format("--{}: {} is not a dimension; it is from 1 to {}", option, asked,
                                   largest_dimension));
    }
    value = asked;
    answer_.stated.push_back(
        {std::string(option), fmt::format("{}", asked), fmt::format("--{}", option)});
    return true;
  }
  void assume(std::string what, std::string value, std::string why) {
    answer_.stated.push_back({std::move(what), std::move(value), std::move(why)});
  }

 private:
  ModelAnswer& answer_;
};

// Hidden width of a gated feed-forward part with as many parameters as a plain one of 4 C: two
// thirds of that, in multiples of 256 (Touvron et al., LLaMA, 2023, section 2.2).
std::int64_t gated_hidden(std::int64_t width) {
  const std::int64_t wanted = 8 * width / 3;
  return (wanted + 255) / 256 * 256;
}

Transformer family_base(const std::string& family) {
  Transformer model;
  model.name = "of these dimensions";
  if (family == "gpt") {
    model.source =
        "dimensions given; the rest as GPT-2: layer norms, biases, learned positions, tied "
        "head";
    model.vocabulary = 50257;
    model.context = 1024;
    model.query_key_value_bias = model.linear_bias = true;
    model.norm = NormKind::layer;
    model.tied_head = model.learned_positions = true;
    return model;
  }
  if (family == "llama" || family.empty()) {
    model.source =
        "dimensions given; the rest as Llama: RMS norms, gated feed-forward parts, no "
        "biases, a head of its own";
    model.vocabulary = 32000;
    model.context = 4096;
    model.gated_mlp = true;
    return model;
  }
  throw UsageError(fmt::format("--family: '{}': there are: gpt, llama", family));
}

ModelAnswer by_dimensions(const ModelQuestion& q) {
  const std::pair<std::string_view, std::int64_t> needed[] = {
      {"layers", q.layers}, {"width", q.width}, {"heads", q.heads}};
  for (const auto& [name, value] : needed) {
    if (value == 0) {
      throw UsageError(
          fmt::format("no model is named, and --{} is missing; give --model, --params, "
                      "--model-config, or --layers, "
                      "--width and --heads",
                      name));
    }
  }
  ModelAnswer answer{.model = family_base(q.family), .stated = {}};
  answer.stated.push_back({"family", q.family.empty() ? "llama" : q.family,
                           q.family.empty() ? "default; --family gpt for GPT-2's" : "--family"});
  return answer;
}

void change_dimensions(const ModelQuestion& q, ModelAnswer& answer, bool from_nothing) {
  Transformer& m = answer.model;
  Changes changes(answer);
  changes.apply("layers", q.layers, m.layers);
  const bool width = changes.apply("width", q.width, m.width);
  const bool heads = changes.apply("heads", q.heads, m.heads);
  if (heads && !changes.apply("kv-heads", q.kv_heads, m.kv_heads)) {
    m.kv_heads = m.heads;
    changes.assume("kv-heads", fmt::format("{}", m.kv_heads), "as many as heads; --kv-heads");
  } else if (!heads) {
    changes.apply("kv-heads", q.kv_heads, m.kv_heads);
  }
  if (!m.latent && width && !heads && m.head_size > 0 && m.width % m.head_size == 0) {
    m.heads = m.width / m.head_size;
    m.kv_heads = m.heads % m.kv_heads == 0 ? m.kv_heads : m.heads;
    changes.assume("heads", fmt::format("{}, {} of keys and values", m.heads, m.kv_heads),
                   fmt::format("of {} elements, as the model's; --heads", m.head_size));
  } else if (!m.latent && (width || heads)) {
    if (m.width % m.heads != 0) {
      throw UsageError(
          fmt::format("--heads: {} heads do not divide width {}; give others", m.heads, m.width));
    }
    m.head_size = m.width / m.heads;
  }
  if (!changes.apply("hidden", q.hidden, m.hidden) && (width || from_nothing)) {
    m.hidden = m.gated_mlp ? gated_hidden(m.width) : 4 * m.width;
    changes.assume("hidden", fmt::format("{}", m.hidden),
                   m.gated_mlp ? "8/3 of the width, in multiples of 256; --hidden"
                               : "4 times the width; --hidden");
  }
  if (m.experts && m.experts->dense_layers == 0) {
    m.experts->hidden = m.hidden;
  }
  if (!changes.apply("vocabulary", q.vocabulary, m.vocabulary) && from_nothing) {
    changes.assume("vocabulary", fmt::format("{}", m.vocabulary), "the family's; --vocabulary");
  }
  if (!changes.apply("context", q.context, m.context) && from_nothing) {
    changes.assume("context", fmt::format("{}", m.context), "the family's; --context");
  }
}

}  // namespace

std::int64_t parse_count(std::string_view text, std::string_view option) {
  const auto refuse = [&](std::string_view why) {
    throw UsageError(
        fmt::format("{}: '{}' {}; write 7B, 1.5T, 300M, 20K or a whole number such as 124439808",
                    option, text, why));
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) {
    refuse("is not a number");
  }
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  double unit = 1;
  if (!suffix.empty()) {
    constexpr std::string_view letters = "KMBT";
    const auto upper = static_cast<char>(std::toupper(static_cast<unsigned char>(suffix.front())));
    const std::size_t index = letters.find(upper);
    if (suffix.size() != 1 || index == std::string_view::npos) {
      refuse(fmt::format("ends with '{}', which is no unit", suffix));
    }
    unit = std::pow(1000.0, static_cast<double>(index + 1));
  }
  const double value = number * unit;
  if (value <= 0) {
    refuse("is not above zero");
  }
  if (value > most_parameters) {
    refuse("is more than 10^18");
  }
  const double rounded = std::round(value);
  if (rounded < 1 || (suffix.empty() && rounded != number)) {
    refuse("is not a whole number");
  }
  return static_cast<std::int64_t>(rounded);
}

std::string count_text(std::int64_t count) {
  constexpr std::string_view units[] = {"", "K", "M", "B", "T", "Q"};
  auto value = static_cast<double>(count);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) {
    return fmt::format("{}", count);
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, units[unit]);
}

Transformer plausible_transformer(std::int64_t parameters) {
  // Llama 3's proportions: heads of 128 elements (64 in small models), eight of keys and values, a
  // feed-forward part 3.5 times the width, and a width about 102 times the depth, as in 70B. Widths
  // and depths are such that tensor and pipeline parallelism can divide them; the feed-forward part
  // closes the gap to the size.
  constexpr double aspect = 8192.0 / 80;
  const auto wanted = static_cast<double>(parameters);
  Transformer best;
  double best_badness = std::numeric_limits<double>::infinity();
  const auto step_from = [](std::int64_t width) {
    return width < 1024 ? 128 : width < 2048 ? 512 : (width / 8192 + 1) * 1024;
  };
  for (std::int64_t width = 128; width <= 1 << 18; width += step_from(width)) {
    Transformer model;
    model.width = width;
    model.head_size = width < 2048 ? 64 : 128;
    model.heads = width / model.head_size;
    model.kv_heads = model.heads % 8 == 0 ? 8 : model.heads;
    model.vocabulary = 128256;
    model.context = 8192;
    model.gated_mlp = true;
    model.tied_head = parameters < 4'000'000'000;
    model.hidden = width * 7 / 2;
    const auto without_layers = static_cast<double>(count_parameters(model).total());
    const auto of_layer = static_cast<double>(layer_parameters(model, 0).total());
    const double depth = (wanted - without_layers) / of_layer;
    const std::int64_t multiple = depth < 12 ? 1 : depth < 64 ? 2 : 4;
    model.layers = std::llround(depth / static_cast<double>(multiple)) * multiple;
    if (model.layers < 1) {
      continue;
    }
    const double badness =
        std::abs(std::log(static_cast<double>(width) / static_cast<double>(model.layers) / aspect));
    if (badness < best_badness) {
      best_badness = badness;
      best = model;
    }
  }
  if (best.layers == 0) {
    throw UsageError(
        fmt::format("--params: {} is too small for a vocabulary of 128256; give --layers, "
                    "--width, --heads and --vocabulary",
                    parameters));
  }
  // What is missing, in columns of the feed-forward part on every layer.
  const std::int64_t columns = best.width < 4096 ? 64 : 256;
  const auto step = static_cast<double>(3 * best.width * best.layers * columns);
  const double missing = wanted - static_cast<double>(count_parameters(best).total());
  best.hidden += columns * std::llround(missing / step);
  best.hidden = std::max(columns, best.hidden / columns * columns);
  best.name = fmt::format("{} model", count_text(parameters));
  best.source = "a plausible shape for the size, in the proportions of Llama 3";
  return best;
}

ModelAnswer answer(const ModelQuestion& q) {
  const int named = int(!q.preset.empty()) + int(!q.parameters.empty()) + int(!q.config.empty());
  if (named > 1) {
    throw UsageError("--model, --params and --model-config say the same thing; give one of them");
  }
  if (named == 1 && !q.family.empty()) {
    throw UsageError("--family is for a model given by --layers, --width and --heads alone");
  }
  ModelAnswer result;
  if (!q.preset.empty()) {
    result.model = find_transformer(q.preset);
    result.stated.push_back({"model", result.model.name, result.model.source});
  } else if (!q.parameters.empty()) {
    const std::int64_t parameters = parse_count(q.parameters, "--params");
    result.model = plausible_transformer(parameters);
    result.stated.push_back({"model", result.model.name, result.model.source});
  } else if (!q.config.empty()) {
    result = read_config(read_file(q.config), q.config);
  } else {
    result = by_dimensions(q);
  }
  change_dimensions(q, result, named == 0);
  if (std::string reason = refusal(result.model); !reason.empty()) {
    throw UsageError(fmt::format("model {}: {}", result.model.name, reason));
  }
  if (named == 0) {
    result.model.name = fmt::format("{} model", count_text(count_parameters(result.model).total()));
  }
  return result;
}

std::string refusal(const Transformer& m) {
  const std::pair<std::string_view, std::int64_t> dimensions[] = {
      {"layers", m.layers},     {"width", m.width},   {"heads", m.heads},
      {"kv-heads", m.kv_heads}, {"hidden", m.hidden}, {"vocabulary", m.vocabulary},
      {"context", m.context}};
  for (const auto& [name, value] : dimensions) {
    const std::int64_t most = name == "layers" ? most_layers : largest_dimension;
    if (value < 1 || value > most) {
      return fmt::format("{} is {}; it is from 1 to {}", name, value, most);
    }
  }
  if (m.heads % m.kv_heads != 0) {
    return fmt::format("{} heads are not a multiple of {} heads of keys and values", m.heads,
                       m.kv_heads);
  }
  if (m.experts && (m.experts->active < 1 || m.experts->active > m.experts->count)) {
    return fmt::format("{} of {} experts are active; it is from 1 to {}", m.experts->active,
                       m.experts->count, m.experts->count);
  }
  if (m.experts && m.experts->dense_layers > m.layers) {
    return fmt::format("the first {} layers have no experts, but there are {}",
                       m.experts->dense_layers, m.layers);
  }
  // As a sum of doubles, so that it cannot overflow.
  const double estimate = static_cast<double>(m.layers) * 4 * static_cast<double>(m.width) *
                          static_cast<double>(std::max(m.width, m.hidden));
  if (estimate > most_parameters) {
    return fmt::format("{} layers of width {} and hidden {} are more than 10^18 parameters",
                       m.layers, m.width, m.hidden);
  }
  return "";
}

}  // namespace ringworld
