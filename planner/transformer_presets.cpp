// The shapes that publications and published configurations give.
#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/transformer.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

struct Size {
  std::int64_t layers;
  std::int64_t width;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t hidden;
  std::int64_t vocabulary;
  std::int64_t context;
};

// GPT-2 and what followed it: layer norms, biases everywhere, learned positions, a tied head.
Transformer gpt(std::string name, std::string source, std::int64_t layers, std::int64_t width,
                std::int64_t heads, std::int64_t head_size, std::int64_t vocabulary,
                std::int64_t context) {
  return {.name = std::move(name),
          .source = std::move(source),
          .layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = heads,
          .head_size = head_size,
          .hidden = 4 * width,
          .vocabulary = vocabulary,
          .context = context,
          .query_key_value_bias = true,
          .linear_bias = true,
          .norm = NormKind::layer,
          .tied_head = true,
          .learned_positions = true};
}

// Llama and what followed it: RMS norms, gated feed-forward parts, rotary positions, no biases.
Transformer llama(std::string name, std::string source, const Size& size) {
  return {.name = std::move(name),
          .source = std::move(source),
          .layers = size.layers,
          .width = size.width,
          .heads = size.heads,
          .kv_heads = size.kv_heads,
          .head_size = size.width / size.heads,
          .hidden = size.hidden,
          .vocabulary = size.vocabulary,
          .context = size.context,
          .gated_mlp = true};
}

Transformer tied(Transformer model) {
  model.tied_head = true;
  return model;
}

Transformer qwen(std::string name, std::string source, const Size& size) {
  Transformer model = llama(std::move(name), std::move(source), size);
  model.query_key_value_bias = true;
  return model;
}

Transformer mixtral(std::string name, std::string source, const Size& size) {
  Transformer model = llama(std::move(name), std::move(source), size);
  model.experts = Experts{.count = 8, .active = 2, .hidden = size.hidden};
  return model;
}

Transformer deepseek_v3() {
  Transformer model = llama(
      "deepseek-v3", "DeepSeek-V3 Technical Report, 2024, section 4.2, without the MTP module",
      {61, 7168, 128, 128, 18432, 129280, 4096});
  model.head_size = 192;
  model.experts = Experts{.count = 256,
                          .active = 8,
                          .shared = 1,
                          .hidden = 2048,
                          .dense_layers = 3,
                          .router_bias = true};
  model.latent = LatentAttention{.query_rank = 1536,
                                 .key_value_rank = 512,
                                 .plain_head = 128,
                                 .rotary_head = 64,
                                 .value_head = 128};
  return model;
}

void add_gpt(std::vector<Transformer>& all) {
  const auto gpt2 = [&](std::string name, std::int64_t layers, std::int64_t width,
                        std::int64_t heads) {
    all.push_back(gpt(std::move(name), "Radford et al., GPT-2, 2019, table 2", layers, width, heads,
                      64, 50257, 1024));
  };
  all.push_back(
      gpt("gpt2-tiny", "our runtime's own, for tests and first steps", 4, 128, 4, 32, 256, 128));
  gpt2("gpt2", 12, 768, 12);
  gpt2("gpt2-medium", 24, 1024, 16);
  gpt2("gpt2-large", 36, 1280, 20);
  gpt2("gpt2-xl", 48, 1600, 25);

  const auto gpt3 = [&](std::string name, std::int64_t layers, std::int64_t width,
                        std::int64_t heads, std::int64_t head_size, std::string_view note = "") {
    all.push_back(gpt(std::move(name), fmt::format("Brown et al., GPT-3, 2020, table 2.1{}", note),
                      layers, width, heads, head_size, 50257, 2048));
  };
  gpt3("gpt3-125m", 12, 768, 12, 64);
  gpt3("gpt3-350m", 24, 1024, 16, 64);
  gpt3("gpt3-760m", 24, 1536, 16, 96);
  gpt3("gpt3-1.3b", 24, 2048, 16, 128, ", with 16 heads where 24 is printed: 24 would be 1.5B");
  gpt3("gpt3-2.7b", 32, 2560, 32, 80);
  gpt3("gpt3-6.7b", 32, 4096, 32, 128);
  gpt3("gpt3-13b", 40, 5140, 40, 128);
  gpt3("gpt3-175b", 96, 12288, 96, 128);

  const auto megatron = [&](std::string name, std::int64_t heads, std::int64_t width,
                            std::int64_t layers) {
    all.push_back(gpt(std::move(name), "Narayanan et al., Megatron-LM, SC 2021, table 1", layers,
                      width, heads, width / heads, 51200, 2048));
  };
  megatron("megatron-1.7b", 24, 2304, 24);
  megatron("megatron-3.6b", 32, 3072, 30);
  megatron("megatron-7.5b", 32, 4096, 36);
  megatron("megatron-18b", 48, 6144, 40);
  megatron("megatron-39b", 64, 8192, 48);
  megatron("megatron-76b", 80, 10240, 60);
  megatron("megatron-145b", 96, 12288, 80);
  megatron("megatron-310b", 128, 16384, 96);
  megatron("megatron-530b", 128, 20480, 105);
  megatron("megatron-1t", 160, 25600, 128);
  all.push_back(gpt("mt-nlg-530b", "Smith et al., MT-NLG, 2022; rows as padded", 105, 20480, 128,
                    160, 50272, 2048));

  const auto korthikanti = [&](std::string name, std::int64_t heads, std::int64_t width,
                               std::int64_t layers) {
    all.push_back(gpt(std::move(name), "Korthikanti et al., 2022, table 3", layers, width, heads,
                      width / heads, 51200, 2048));
  };
  korthikanti("korthikanti-22b", 64, 6144, 48);
  korthikanti("korthikanti-175b", 96, 12288, 96);
}

void add_llama(std::vector<Transformer>& all) {
  const std::string first = "Touvron et al., LLaMA, 2023, table 2; hidden: config.json";
  all.push_back(llama("llama-7b", first, {32, 4096, 32, 32, 11008, 32000, 2048}));
  all.push_back(llama("llama-13b", first, {40, 5120, 40, 40, 13824, 32000, 2048}));
  all.push_back(llama("llama-33b", first, {60, 6656, 52, 52, 17920, 32000, 2048}));
  all.push_back(llama("llama-65b", first, {80, 8192, 64, 64, 22016, 32000, 2048}));

  all.push_back(llama("llama-tiny", "our runtime's own, for tests and first steps",
                      {4, 128, 4, 2, 352, 256, 128}));

  const std::string second = "Touvron et al., Llama 2, 2023; config.json of the release";
  all.push_back(llama("llama-2-7b", second, {32, 4096, 32, 32, 11008, 32000, 4096}));
  all.push_back(llama("llama-2-13b", second, {40, 5120, 40, 40, 13824, 32000, 4096}));
  all.push_back(llama("llama-2-70b", second, {80, 8192, 64, 8, 28672, 32000, 4096}));
  all.push_back(llama("tinyllama-1.1b", "Zhang et al., TinyLlama, 2024; config.json of the release",
                      {22, 2048, 32, 4, 5632, 32000, 2048}));

  const std::string third = "Dubey et al., Llama 3, 2024, table 3";
  all.push_back(llama("llama-3-8b", third, {32, 4096, 32, 8, 14336, 128256, 8192}));
  all.push_back(llama("llama-3-70b", third, {80, 8192, 64, 8, 28672, 128256, 8192}));
  all.push_back(llama("llama-3-405b", third, {126, 16384, 128, 8, 53248, 128256, 8192}));
  const std::string small = "config.json of Llama 3.2";
  all.push_back(tied(llama("llama-3.2-1b", small, {16, 2048, 32, 8, 8192, 128256, 131072})));
  all.push_back(tied(llama("llama-3.2-3b", small, {28, 3072, 24, 8, 8192, 128256, 131072})));
}

void add_qwen(std::vector<Transformer>& all) {
  const std::string first = "config.json of Qwen1.5, 2024";
  all.push_back(tied(qwen("qwen1.5-0.5b", first, {24, 1024, 16, 16, 2816, 151936, 32768})));
  all.push_back(qwen("qwen1.5-1.8b", first, {24, 2048, 16, 16, 5504, 151936, 32768}));
  all.push_back(qwen("qwen1.5-4b", first, {40, 2560, 20, 20, 6912, 151936, 32768}));
  all.push_back(qwen("qwen1.5-7b", first, {32, 4096, 32, 32, 11008, 151936, 32768}));
  all.push_back(qwen("qwen1.5-14b", first, {40, 5120, 40, 40, 13696, 152064, 32768}));
  all.push_back(qwen("qwen1.5-32b", first, {64, 5120, 40, 8, 27392, 152064, 32768}));
  all.push_back(qwen("qwen1.5-72b", first, {80, 8192, 64, 64, 24576, 152064, 32768}));
  all.push_back(qwen("qwen1.5-110b", first, {80, 8192, 64, 8, 49152, 152064, 32768}));

  const std::string second = "Qwen2.5 Technical Report, 2024, table 1; config.json";
  all.push_back(tied(qwen("qwen2.5-0.5b", second, {24, 896, 14, 2, 4864, 151936, 32768})));
  all.push_back(tied(qwen("qwen2.5-1.5b", second, {28, 1536, 12, 2, 8960, 151936, 131072})));
  all.push_back(tied(qwen("qwen2.5-3b", second, {36, 2048, 16, 2, 11008, 151936, 32768})));
  all.push_back(qwen("qwen2.5-7b", second, {28, 3584, 28, 4, 18944, 152064, 131072}));
  all.push_back(qwen("qwen2.5-14b", second, {48, 5120, 40, 8, 13824, 152064, 131072}));
  all.push_back(qwen("qwen2.5-32b", second, {64, 5120, 40, 8, 27648, 152064, 131072}));
  all.push_back(qwen("qwen2.5-72b", second, {80, 8192, 64, 8, 29568, 152064, 131072}));
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

}  // namespace

const std::vector<Transformer>& transformer_presets() {
  static const std::vector<Transformer> all = [] {
    std::vector<Transformer> models;
    add_gpt(models);
    add_llama(models);
    add_qwen(models);
    models.push_back(llama("mistral-7b", "Jiang et al., Mistral 7B, 2023, table 1",
                           {32, 4096, 32, 8, 14336, 32000, 8192}));
    models.push_back(mixtral("mixtral-8x7b", "Jiang et al., Mixtral of Experts, 2024, table 1",
                             {32, 4096, 32, 8, 14336, 32000, 32768}));
    models.push_back(mixtral("mixtral-8x22b", "config.json of Mixtral 8x22B v0.1, 2024",
                             {56, 6144, 48, 8, 16384, 32000, 65536}));
    models.push_back(deepseek_v3());
    return models;
  }();
  return all;
}

std::vector<std::string> transformer_names() {
  std::vector<std::string> names;
  for (const Transformer& model : transformer_presets()) {
    names.push_back(model.name);
  }
  return names;
}

const Transformer& find_transformer(std::string_view name) {
  const auto without_dashes = [](std::string text) {
    std::erase(text, '-');
    return text;
  };
  const std::string wanted = without_dashes(lower(name));
  // "llama3" means one of those that begin so, however few letters others are away.
  std::vector<std::string> begun;
  for (const Transformer& model : transformer_presets()) {
    const std::string known = without_dashes(model.name);
    if (known == wanted) {
      return model;
    }
    if (!wanted.empty() && known.starts_with(wanted)) {
      begun.push_back(model.name);
    }
  }
  if (!begun.empty()) {
    throw UsageError(
        fmt::format("'{}': unknown model; did you mean {}?", name, fmt::join(begun, ", ")));
  }
  throw UsageError(
      fmt::format("'{}': unknown model; did you mean {}? Others by --params, by --layers, --width "
                  "and --heads, "
                  "or from a --model-config file; ringworld plan memory --help lists all names",
                  name, nearest(lower(name), transformer_names())));
}

}  // namespace ringworld
