// Parameter counts, against what publishers and checkpoints give.
#include "planner/transformer.h"

#include <gtest/gtest.h>

#include "models/model.h"
#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

std::int64_t total(std::string_view name) {
  return count_parameters(find_transformer(name)).total();
}

struct Published {
  const char* model;
  std::int64_t parameters;
};

class Exact : public testing::TestWithParam<Published> {};

TEST_P(Exact, ParametersAreThoseOfTheCheckpoint) {
  EXPECT_EQ(total(GetParam().model), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Exact,
    testing::Values(
        Published{"gpt2", 124'439'808}, Published{"gpt2-medium", 354'823'168},
        Published{"gpt2-large", 774'030'080}, Published{"gpt2-xl", 1'557'611'200},
        Published{"llama-2-7b", 6'738'415'616}, Published{"llama-7b", 6'738'415'616},
        Published{"llama-2-70b", 68'976'648'192}, Published{"llama-3-8b", 8'030'261'248},
        Published{"llama-3-70b", 70'553'706'496}, Published{"llama-3-405b", 405'853'388'800},
        Published{"llama-3.2-1b", 1'235'814'400}, Published{"tinyllama-1.1b", 1'100'048'384},
        Published{"qwen1.5-72b", 72'287'920'128}, Published{"qwen2.5-72b", 72'706'203'648},
        Published{"qwen2.5-0.5b", 494'032'768}, Published{"qwen2.5-7b", 7'615'616'512},
        Published{"mistral-7b", 7'241'732'096}, Published{"mixtral-8x7b", 46'702'792'704},
        Published{"mixtral-8x22b", 140'620'634'112}, Published{"deepseek-v3", 671'026'419'200}),
    [](const auto& row) {
      std::string name = row.param.model;
      std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
      return name;
    });

// With as many heads of keys and values as of queries, the count that GPT-2's formula would give.
TEST(GroupedQueries, ShareKeysAndValues) {
  Transformer model = find_transformer("llama-3-8b");
  model.kv_heads = model.heads;
  EXPECT_EQ(count_parameters(model).total(), 8'835'567'616);
}

// Two matrices instead of three: the 56.19B that a calculator gave for Qwen1.5-72B.
TEST(GatedFeedForward, HasThreeMatrices) {
  Transformer model = find_transformer("qwen1.5-72b");
  const std::int64_t gated = count_parameters(model).total();
  model.gated_mlp = false;
  EXPECT_EQ(gated - count_parameters(model).total(), 80LL * 8192 * 24576);
}

// Narayanan et al., Megatron-LM, SC 2021, equation 2, which leaves out the last layer norm; and
// table 1, in billions.
TEST(Megatron, IsEquationTwoAndTableOne) {
  struct Row {
    const char* model;
    double billions;
  };
  for (const Row& row :
       {Row{"megatron-1.7b", 1.7}, Row{"megatron-3.6b", 3.6}, Row{"megatron-7.5b", 7.5},
        Row{"megatron-18b", 18.4}, Row{"megatron-39b", 39.1}, Row{"megatron-76b", 76.1},
        Row{"megatron-145b", 145.6}, Row{"megatron-310b", 310.1}, Row{"megatron-530b", 529.6},
        Row{"megatron-1t", 1008.0}}) {
    const Transformer& m = find_transformer(row.model);
    const std::int64_t equation = 12 * m.layers * m.width * m.width + 13 * m.layers * m.width +
                                  (m.vocabulary + 2048) * m.width;
    EXPECT_EQ(total(row.model), equation + 2 * m.width) << row.model;
    EXPECT_NEAR(static_cast<double>(equation) / 1e9, row.billions, 0.0501) << row.model;
  }
}

TEST(Parts, AddUp) {
  for (const Transformer& model : transformer_presets()) {
    const ParameterCount parts = count_parameters(model);
    std::int64_t layers = 0;
    for (std::int64_t i = 0; i < model.layers; ++i) {
      layers += layer_parameters(model, i).total();
    }
    const std::int64_t last_norm = model.norm == NormKind::layer ? 2 * model.width : model.width;
    EXPECT_EQ(parts.total(), layers + parts.embedding + parts.positions + parts.head + last_norm)
        << model.name;
    EXPECT_LE(count_active_parameters(model).total(), parts.total()) << model.name;
  }
}

TEST(Experts, OnlyTheActiveOnesCount) {
  // Mixtral of Experts, section 1: 47B, 13B active. DeepSeek-V3: 671B, 37B active.
  EXPECT_EQ(count_active_parameters(find_transformer("mixtral-8x7b")).total(), 12'879'925'248);
  const std::int64_t deepseek = count_active_parameters(find_transformer("deepseek-v3")).total();
  EXPECT_NEAR(static_cast<double>(deepseek) / 1e9, 37.0, 0.6);
  EXPECT_EQ(count_active_parameters(find_transformer("llama-3-8b")).total(), total("llama-3-8b"));
}

TEST(Vocabulary, IsPaddedForTensorParallelism) {
  const std::int64_t rows[] = {50'304, 50'432, 50'688, 51'200};
  const std::int64_t ranks[] = {1, 2, 4, 8};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(padded_vocabulary(50257, ranks[i]), rows[i]);
  }
  Transformer padded = find_transformer("gpt2");
  padded.vocabulary = padded_vocabulary(padded.vocabulary, 1);
  EXPECT_EQ(count_parameters(padded).total(), 124'475'904);
}

TEST(Presets, AreDescribed) {
  EXPECT_EQ(describe(find_transformer("llama-3-8b")),
            "32 layers, width 4096, 32 heads of 128 (8 of keys and values), gated feed-forward of "
            "14336, vocabulary 128256, context 8192");
  EXPECT_EQ(describe(find_transformer("gpt2")),
            "12 layers, width 768, 12 heads of 64, feed-forward of 3072, vocabulary 50257 with a "
            "tied head, context 1024");
  EXPECT_EQ(describe(find_transformer("deepseek-v3")),
            "61 layers, width 7168, 128 heads of 128 + 64 with latent attention of rank 512, gated "
            "feed-forward of 18432, 256 experts of 2048, 8 active and 1 shared, from layer 3 on, "
            "vocabulary 129280, context 4096");
}

// What can be trained can be planned, by the same name.
TEST(Presets, AreTheRuntimesModelsToo) {
  for (const std::string& name : model_names()) {
    if (name == "mlp") {
      continue;  // no transformer
    }
    EXPECT_EQ(count_parameters(find_transformer(name)).total(),
              make_model({.name = name}, DType::f32)->parameter_count())
        << name;
  }
}

TEST(Presets, AnUnknownOneIsRefusedWithTheNearest) {
  expect_error<UsageError>([] { find_transformer("lama3-8b"); },
                           {"'lama3-8b'", "did you mean llama-3-8b?"});
  EXPECT_EQ(find_transformer("Llama3-8B").name, "llama-3-8b");
}

}  // namespace
}  // namespace ringworld
