// The shape of a decoder-only transformer, and how many parameters it has: exact, by part, total
// and active for one token.
//
// A layer is attention and a feed-forward part, each behind a norm. Shapes below are written with
// C the width, H the hidden width of the feed-forward part, V the vocabulary, a heads of d
// elements each, and k heads of keys and values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringworld {

enum class NormKind : std::uint8_t {
  layer,  // weight and bias (Ba et al., 2016)
  rms,    // weight alone (Zhang and Sennrich, 2019)
};

// A router sends each token to `active` of `count` feed-forward parts (Shazeer et al., 2017); it
// passes through the shared ones besides.
struct Experts {
  std::int64_t count = 0;
  std::int64_t active = 0;
  std::int64_t shared = 0;
  std::int64_t hidden = 0;        // of one expert
  std::int64_t dense_layers = 0;  // the first layers, which have one feed-forward part instead
  bool router_bias = false;       // one number for each expert, beside the router's (count, C)
};

// Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): queries, keys and values come out
// of low-rank projections, each behind an RMS norm.
struct LatentAttention {
  std::int64_t query_rank = 0;  // 0: queries come straight from the width
  std::int64_t key_value_rank = 0;
  std::int64_t plain_head = 0;   // elements of a head's query and key without a position
  std::int64_t rotary_head = 0;  // and with one; of keys there is one for all heads
  std::int64_t value_head = 0;
};

struct Transformer {
  std::string name;
  std::string source;  // of the shape: paper and table, or the publisher's configuration

  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   // as many as heads, or fewer (Ainslie et al., GQA, 2023)
  std::int64_t head_size = 0;  // elements; with latent attention unused
  std::int64_t hidden = 0;     // of the dense feed-forward part
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  // longest sequence; the rows of learned positions

  bool gated_mlp = false;             // three matrices, not two (Shazeer, GLU Variants, 2020)
  bool query_key_value_bias = false;  // as Qwen's
  bool linear_bias = false;           // of attention's output and of the feed-forward part
  NormKind norm = NormKind::rms;
  bool tied_head = false;  // the head's weight is the token embedding's
  bool learned_positions = false;

  std::optional<Experts> experts = {};
  std::optional<LatentAttention> latent = {};

  // Of all heads together: what attention's output is projected from.
  std::int64_t attention_width() const;
  // Has its layer (counted from 0) experts?
  bool has_experts(std::int64_t layer) const;
};

// "32 layers, width 4096, 32 heads of 128 (8 of keys and values), gated feed-forward of 14336,
// ...".
std::string describe(const Transformer& model);

// Parameters of one layer. Tensor parallelism (Shoeybi et al., Megatron-LM, 2019) gives a rank a
// part of some, and all of the others.
struct LayerParameters {
  std::int64_t attention_split = 0;  // by heads
  std::int64_t attention_whole = 0;  // output bias, latent projections down and their norms
  std::int64_t mlp_split = 0;        // of a dense layer
  std::int64_t mlp_whole = 0;        // output bias
  std::int64_t router = 0;
  std::int64_t expert = 0;   // of one expert
  std::int64_t experts = 0;  // of all of them, shared ones excluded
  std::int64_t shared_experts = 0;
  std::int64_t norms = 0;

  std::int64_t total() const;
};
LayerParameters layer_parameters(const Transformer& model, std::int64_t layer);

// Of the whole model. total() is the sum of all.
struct ParameterCount {
  std::int64_t embedding = 0;  // (V, C); the head's, too, where it is tied
  std::int64_t positions = 0;  // (context, C)
  std::int64_t attention = 0;
  std::int64_t mlp = 0;      // of dense layers
  std::int64_t experts = 0;  // shared ones included
  std::int64_t router = 0;
  std::int64_t norms = 0;  // the last one included
  std::int64_t head = 0;   // (V, C); 0 where it is tied

  std::int64_t total() const;
};
ParameterCount count_parameters(const Transformer& model);
// Those that one token passes through: of the experts only the active and the shared ones. The
// embedding counts whole, as in the numbers that publishers give.
ParameterCount count_active_parameters(const Transformer& model);

// Rows of an embedding that is split over `tensor` ranks, each with a multiple of `multiple` rows
// (Megatron-LM pads to 128 for each rank).
std::int64_t padded_vocabulary(std::int64_t vocabulary, std::int64_t tensor,
                               std::int64_t multiple = 128);

// --- Presets (transformer_presets.cpp) ----------------------------------------------------------

const std::vector<Transformer>& transformer_presets();
std::vector<std::string> transformer_names();
// Throws UsageError that names the nearest. Upper and lower case are the same.
const Transformer& find_transformer(std::string_view name);

}  // namespace ringworld
