// Which model is meant: sizes, dimensions, configurations, and what is refused.
#include "planner/model_input.h"

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

TEST(Sizes, AreRead) {
  EXPECT_EQ(parse_count("7B", "--params"), 7'000'000'000);
  EXPECT_EQ(parse_count("1.5T", "--params"), 1'500'000'000'000);
  EXPECT_EQ(parse_count("300M", "--params"), 300'000'000);
  EXPECT_EQ(parse_count("300m", "--params"), 300'000'000);
  EXPECT_EQ(parse_count("124439808", "--params"), 124'439'808);
  EXPECT_EQ(parse_count("0.5b", "--params"), 500'000'000);
  EXPECT_EQ(parse_count("1e9", "--params"), 1'000'000'000);
}

TEST(Sizes, ThatMeanNothingAreRefused) {
  for (const char* text : {"", "B", "seven", "-7B", "0", "0B", "7X", "7BB", "7 B", "1.5", "nan",
                           "inf", "1e40", "2e9B", "0.0001"}) {
    expect_error<UsageError>([&] { parse_count(text, "--params"); },
                             {"--params", fmt::format("'{}'", text)});
  }
}

TEST(Sizes, AreWrittenWithThreeDigits) {
  EXPECT_EQ(count_text(8'030'261'248), "8.03B");
  EXPECT_EQ(count_text(124'439'808), "124M");
  EXPECT_EQ(count_text(999'600'000), "1.00B");
  EXPECT_EQ(count_text(950), "950");
}

// The shape is near the size, and not absurd: tens to hundreds of columns of width for each layer.
TEST(Params, GiveAPlausibleShape) {
  for (const char* size : {"50M", "300M", "1B", "7B", "13B", "70B", "405B", "1T", "10T"}) {
    const ModelAnswer model = answer({.parameters = size});
    const Transformer& m = model.model;
    const auto asked = static_cast<double>(parse_count(size, ""));
    const auto got = static_cast<double>(count_parameters(m).total());
    EXPECT_NEAR(got / asked, 1, 0.01) << size;
    EXPECT_EQ(m.width, m.heads * m.head_size) << size;
    EXPECT_EQ(m.heads % m.kv_heads, 0) << size;
    if (asked >= 7e9) {  // eight tensor ranks can divide it
      EXPECT_EQ(m.heads % 8, 0) << size;
      EXPECT_EQ(m.hidden % 256, 0) << size;
    }
    EXPECT_GT(m.hidden, m.width) << size;
    EXPECT_LT(m.hidden, 8 * m.width) << size;
    const double aspect = static_cast<double>(m.width) / static_cast<double>(m.layers);
    EXPECT_GT(aspect, 10) << size << " " << m.layers << " x " << m.width;
    EXPECT_LT(aspect, 400) << size << " " << m.layers << " x " << m.width;
  }
  expect_error<UsageError>([] { answer({.parameters = "1M"}); }, {"--params", "too small"});
}

TEST(Dimensions, GiveAModelOfTheirFamily) {
  const ModelAnswer gpt = answer({.family = "gpt", .layers = 12, .width = 768, .heads = 12});
  EXPECT_EQ(count_parameters(gpt.model).total(), 124'439'808);
  const ModelAnswer llama = answer({.layers = 22,
                                    .width = 2048,
                                    .heads = 32,
                                    .kv_heads = 4,
                                    .hidden = 5632,
                                    .vocabulary = 32000});
  EXPECT_EQ(count_parameters(llama.model).total(), 1'100'048'384);
}

TEST(Dimensions, ChangeAPreset) {
  const ModelAnswer changed = answer({.preset = "gpt2", .layers = 24});
  EXPECT_EQ(changed.model.layers, 24);
  EXPECT_EQ(changed.model.width, 768);
  EXPECT_EQ(changed.stated.back().what, "layers");
  EXPECT_EQ(changed.stated.back().source, "--layers");
}

TEST(Dimensions, ThatCannotBeAreRefused) {
  expect_error<UsageError>([] { answer({}); }, {"--layers", "--model"});
  expect_error<UsageError>([] { answer({.layers = 2, .heads = 2}); }, {"--width"});
  expect_error<UsageError>([] { answer({.layers = 2, .width = 10, .heads = 3}); },
                           {"--heads", "3", "10"});
  expect_error<UsageError>([] { answer({.layers = 2, .width = 12, .heads = 4, .kv_heads = 3}); },
                           {"4 heads", "3"});
  expect_error<UsageError>([] { answer({.preset = "gpt2", .parameters = "7B"}); },
                           {"--model", "--params"});
  expect_error<UsageError>([] { answer({.preset = "gpt2", .layers = -1}); }, {"--layers", "-1"});
  expect_error<UsageError>([] { answer({.layers = 2'000'000'000, .width = 8, .heads = 1}); },
                           {"layers is 2000000000", "100000"});
  expect_error<UsageError>([] { answer({.layers = 100'000, .width = 500'000'000, .heads = 1}); },
                           {"10^18"});
  expect_error<UsageError>([] { answer({.family = "rnn", .layers = 1, .width = 8, .heads = 1}); },
                           {"--family", "rnn"});
}

TEST(Dimensions, OfExpertsAndLatentAttention) {
  const ModelAnswer mixtral = answer({.preset = "mixtral-8x7b", .hidden = 1024});
  EXPECT_EQ(mixtral.model.experts->hidden, 1024);
  const ModelAnswer deepseek = answer({.preset = "deepseek-v3", .layers = 4, .width = 1024});
  EXPECT_EQ(deepseek.model.heads, 128);
  expect_error<UsageError>([] { answer({.preset = "deepseek-v3", .layers = 2}); }, {"3", "2"});
}

// --- Hugging Face's config.json
// ------------------------------------------------------------------

constexpr const char* llama3 = R"({
  "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
  "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
  "max_position_embeddings": 8192, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

std::int64_t total(const char* json) {
  return count_parameters(read_config(json, "config.json").model).total();
}

TEST(Config, OfEveryKnownArchitecture) {
  EXPECT_EQ(total(llama3), 8'030'261'248);
  EXPECT_EQ(total(R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12,
                      "vocab_size": 50257, "n_positions": 1024})"),
            124'439'808);
  EXPECT_EQ(total(R"({"model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896,
                      "num_attention_heads": 14, "num_key_value_heads": 2,
                      "intermediate_size": 4864, "vocab_size": 151936,
                      "max_position_embeddings": 32768, "tie_word_embeddings": true})"),
            494'032'768);
  EXPECT_EQ(total(R"({"model_type": "mistral", "num_hidden_layers": 32, "hidden_size": 4096,
                      "num_attention_heads": 32, "num_key_value_heads": 8,
                      "intermediate_size": 14336, "vocab_size": 32000,
                      "max_position_embeddings": 32768})"),
            7'241'732'096);
  EXPECT_EQ(total(R"({"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096,
                      "num_attention_heads": 32, "num_key_value_heads": 8,
                      "intermediate_size": 14336, "vocab_size": 32000,
                      "max_position_embeddings": 32768, "num_local_experts": 8,
                      "num_experts_per_tok": 2})"),
            46'702'792'704);
  EXPECT_EQ(total(R"({"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
                      "num_attention_heads": 128, "num_key_value_heads": 128,
                      "intermediate_size": 18432, "vocab_size": 129280,
                      "max_position_embeddings": 163840, "q_lora_rank": 1536,
                      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                      "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
                      "n_shared_experts": 1, "moe_intermediate_size": 2048,
                      "first_k_dense_replace": 3})"),
            671'026'419'200);
}

TEST(Config, NamesFileAndFieldOfEachValue) {
  const ModelAnswer model = read_config(llama3, "dir/config.json");
  EXPECT_EQ(model.precision, DType::bf16);
  bool found = false;
  for (const Stated& value : model.stated) {
    found = found || (value.what == "kv-heads" && value.value == "8" &&
                      value.source == "dir/config.json, num_key_value_heads");
  }
  EXPECT_TRUE(found);
}

TEST(Config, WithMissingOrContradictingFieldsIsRefused) {
  struct Row {
    const char* field;
    const char* value;  // null: missing
    const char* fact;
  };
  for (const Row& row :
       {Row{"num_hidden_layers", nullptr, "missing"}, Row{"hidden_size", nullptr, "missing"},
        Row{"vocab_size", nullptr, "missing"}, Row{"num_attention_heads", "30", "does not divide"},
        Row{"num_key_value_heads", "5", "5"}, Row{"hidden_size", "\"wide\"", "wide"},
        Row{"hidden_size", "-4096", "-4096"}, Row{"num_hidden_layers", "0", "layers is 0"},
        Row{"tie_word_embeddings", "1", "true or false"}, Row{"torch_dtype", "\"int4\"", "int4"},
        Row{"tie_word_embeddings", "false, \"mlp_bias\": true", "mlp_bias"},
        Row{"tie_word_embeddings", "false, \"attention_bias\": true", "attention_bias"},
        Row{"model_type", "\"mamba\"", "mamba"}, Row{"model_type", nullptr, "missing"}}) {
    std::string text = llama3;
    const std::size_t at = text.find(fmt::format("\"{}\"", row.field));
    const std::size_t end = std::min(text.find(',', at), text.find('}', at));
    text.replace(at, end - at,
                 row.value == nullptr ? std::string("\"other\": 1")
                                      : fmt::format("\"{}\": {}", row.field, row.value));
    expect_error<UsageError>([&] { read_config(text, "a.json"); }, {"a.json", row.fact});
  }
  expect_error<DataError>([] { read_config("[1, 2", "a.json"); }, {"a.json", "JSON"});
  expect_error<DataError>([] { answer({.config = "/does/not/exist"}); }, {"/does/not/exist"});
}

}  // namespace
}  // namespace ringworld
