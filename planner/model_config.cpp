// Hugging Face's config.json: which fields say what, for the architectures that the planner knows.
#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "planner/model_input.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

using Json = nlohmann::json;

// Fields of a configuration, read once each, with an error that names file and field.
class Fields {
 public:
  Fields(const Json& json, std::string path, ModelAnswer& answer)
      : json_(json), path_(std::move(path)), answer_(answer) {}

  // `what` is the planner's name of it.
  std::int64_t integer(const std::string& field, std::string what) {
    const std::optional<std::int64_t> value = optional_integer(field, std::move(what));
    if (!value) {
      fail(field, "is missing; the model's shape depends on it");
    }
    return *value;
  }
  std::optional<std::int64_t> optional_integer(const std::string& field, std::string what) {
    const auto found = json_.find(field);
    if (found == json_.end() || found->is_null()) {
      return {};
    }
    if (!found->is_number_integer() || found->get<std::int64_t>() < 0) {
      fail(field, fmt::format("is {}; it is a whole number", found->dump()));
    }
    const auto value = found->get<std::int64_t>();
    say(std::move(what), fmt::format("{}", value), field);
    return value;
  }
  // Where the field is missing, what the architecture's configuration class assumes.
  std::int64_t integer_or(const std::string& field, std::string what, std::int64_t value,
                          std::string_view why) {
    if (const auto given = optional_integer(field, what)) {
      return *given;
    }
    answer_.stated.push_back(
        {std::move(what), fmt::format("{}", value), fmt::format("{}: {}", field, why)});
    return value;
  }
  bool flag_or(const std::string& field, std::string what, bool value) {
    const auto found = json_.find(field);
    if (found == json_.end() || found->is_null()) {
      answer_.stated.push_back(
          {std::move(what), value ? "yes" : "no",
           fmt::format("{} is not in the file: the architecture's own", field)});
      return value;
    }
    if (!found->is_boolean()) {
      fail(field, fmt::format("is {}; it is true or false", found->dump()));
    }
    say(std::move(what), found->get<bool>() ? "yes" : "no", field);
    return found->get<bool>();
  }
  std::string text(const std::string& field) const {
    const auto found = json_.find(field);
    return found != json_.end() && found->is_string() ? found->get<std::string>() : std::string();
  }
  void say(std::string what, std::string value, const std::string& field) {
    answer_.stated.push_back(
        {std::move(what), std::move(value), fmt::format("{}, {}", path_, field)});
  }
  [[noreturn]] void fail(const std::string& field, const std::string& why) const {
    throw UsageError(fmt::format("--model-config: {}: {} {}", path_, field, why));
  }

 private:
  const Json& json_;
  std::string path_;
  ModelAnswer& answer_;
};

void check_divides(const Fields& fields, const Transformer& m, const std::string& heads_field) {
  if (m.heads == 0 || m.width % m.heads != 0) {
    fields.fail(heads_field,
                fmt::format("is {}, which does not divide the width {}, and there is no "
                            "head_dim",
                            m.heads, m.width));
  }
}

void read_gpt2(Fields& f, Transformer& m) {
  m.layers = f.integer("n_layer", "layers");
  m.width = f.integer("n_embd", "width");
  m.heads = f.integer("n_head", "heads");
  check_divides(f, m, "n_head");
  m.kv_heads = m.heads;
  m.head_size = m.width / m.heads;
  m.hidden = f.integer_or("n_inner", "hidden", 4 * m.width, "not given, so 4 times the width");
  m.vocabulary = f.integer("vocab_size", "vocabulary");
  m.context = f.integer("n_positions", "context");
  m.query_key_value_bias = m.linear_bias = true;
  m.norm = NormKind::layer;
  m.learned_positions = true;
  m.tied_head = f.flag_or("tie_word_embeddings", "tied head", true);
}

void read_latent(Fields& f, Transformer& m) {
  m.latent =
      LatentAttention{.query_rank = f.optional_integer("q_lora_rank", "query rank").value_or(0),
                      .key_value_rank = f.integer("kv_lora_rank", "key-value rank"),
                      .plain_head = f.integer("qk_nope_head_dim", "head size without positions"),
                      .rotary_head = f.integer("qk_rope_head_dim", "head size with positions"),
                      .value_head = f.integer("v_head_dim", "head size of values")};
  m.head_size = m.latent->plain_head + m.latent->rotary_head;
}

// Llama, Mistral, Qwen2, Mixtral and DeepSeek-V3 share these fields.
void read_llama(Fields& f, Transformer& m, const std::string& type) {
  m.layers = f.integer("num_hidden_layers", "layers");
  m.width = f.integer("hidden_size", "width");
  m.heads = f.integer("num_attention_heads", "heads");
  m.hidden = f.integer("intermediate_size", "hidden");
  m.vocabulary = f.integer("vocab_size", "vocabulary");
  m.context = f.integer("max_position_embeddings", "context");
  m.kv_heads =
      f.integer_or("num_key_value_heads", "kv-heads", m.heads, "not given, so as many as heads");
  m.gated_mlp = true;
  m.tied_head = f.flag_or("tie_word_embeddings", "tied head", false);
  if (type == "deepseek_v3") {
    read_latent(f, m);
  } else if (const auto size = f.optional_integer("head_dim", "head size")) {
    m.head_size = *size;
  } else {
    check_divides(f, m, "num_attention_heads");
    m.head_size = m.width / m.heads;
  }
  if (type == "qwen2") {
    m.query_key_value_bias = true;
    f.say("bias of queries, keys and values", "yes", "model_type qwen2");
  }
  for (const char* field : {"attention_bias", "mlp_bias"}) {
    if (f.flag_or(field, fmt::format("{} of the file", field), false)) {
      f.fail(field, "is true; such biases are not counted here");
    }
  }
  if (type == "mixtral") {
    m.experts = Experts{.count = f.integer("num_local_experts", "experts"),
                        .active = f.integer("num_experts_per_tok", "active experts"),
                        .hidden = m.hidden};
  }
  if (type == "deepseek_v3") {
    m.experts = Experts{.count = f.integer("n_routed_experts", "experts"),
                        .active = f.integer("num_experts_per_tok", "active experts"),
                        .shared = f.integer("n_shared_experts", "shared experts"),
                        .hidden = f.integer("moe_intermediate_size", "hidden of an expert"),
                        .dense_layers = f.integer("first_k_dense_replace", "dense layers"),
                        .router_bias = true};
    if (f.integer_or("moe_layer_freq", "every n-th layer has experts", 1, "not given") != 1) {
      f.fail("moe_layer_freq", "is not 1; layers with and without experts in turn are not counted");
    }
  }
}

std::optional<DType> dtype_of(const Fields& fields, const std::string& text) {
  if (text.empty()) {
    return {};
  }
  if (text == "float32") {
    return DType::f32;
  }
  if (text == "bfloat16") {
    return DType::bf16;
  }
  if (text == "float16") {
    return DType::f16;
  }
  fields.fail("torch_dtype", fmt::format("is '{}'; known are float32, bfloat16 and float16", text));
}

}  // namespace

ModelAnswer read_config(std::string_view text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw DataError(
        fmt::format("--model-config: '{}' is not a JSON object; give a model's config.json", path));
  }
  ModelAnswer answer;
  Fields fields(json, path, answer);
  const std::string type = fields.text("model_type");
  constexpr std::string_view known[] = {"gpt2",  "llama",   "mistral",
                                        "qwen2", "mixtral", "deepseek_v3"};
  if (std::ranges::find(known, type) == std::end(known)) {
    fields.fail("model_type",
                fmt::format("{}; known are {}. Give --layers, --width, --heads instead",
                            type.empty() ? "is missing" : fmt::format("is '{}'", type),
                            fmt::join(known, ", ")));
  }
  fields.say("architecture", type, "model_type");
  Transformer& m = answer.model;
  m.name = fields.text("_name_or_path").empty() ? type : fields.text("_name_or_path");
  m.source = path;
  type == "gpt2" ? read_gpt2(fields, m) : read_llama(fields, m, type);
  const std::string field = json.contains("dtype") ? "dtype" : "torch_dtype";
  answer.precision = dtype_of(fields, fields.text(field));
  if (const std::string reason = refusal(m); !reason.empty()) {
    throw UsageError(fmt::format("--model-config: {}: {}", path, reason));
  }
  return answer;
}

}  // namespace ringworld
