// Which model is meant: a preset, a size alone, dimensions, or a Hugging Face config.json; and
// where each number of it comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/transformer.h"
#include "runtime/dtype.h"

namespace ringworld {

// A value that a plan rests on, and who says so: an option, a file, a paper, a default.
struct Stated {
  std::string what;
  std::string value;
  std::string source;
};

// What the user said; empty and 0: nothing. At most one of preset, parameters and config;
// dimensions change what it says, or say everything themselves.
struct ModelQuestion {
  std::string preset = {};
  std::string parameters = {};  // "70B"
  std::string config = {};      // path of a config.json
  std::string family = {};      // "gpt" or "llama": of a model that is given by dimensions alone
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;
};

struct ModelAnswer {
  Transformer model;
  std::vector<Stated> stated;           // in the order in which they are printed
  std::optional<DType> precision = {};  // where the configuration names one
};

// Throws UsageError for what cannot be, DataError for a file that cannot be read.
ModelAnswer answer(const ModelQuestion& question);

// "7B", "1.5T", "300M", "124439808", "1e9" as a number of things. Throws UsageError that names
// `option` for what is negative, zero, absurd (above 10^18) or no number.
std::int64_t parse_count(std::string_view text, std::string_view option);
// "8.03B": three digits that matter.
std::string count_text(std::int64_t count);

// A dense model in the manner of Llama 3 whose size is as near to `parameters` as multiples allow.
Transformer plausible_transformer(std::int64_t parameters);

// A Hugging Face configuration. `path` is named in messages.
ModelAnswer read_config(std::string_view json, const std::string& path);

// What speaks against the shape itself: the dimension and what would fit; empty: nothing.
std::string refusal(const Transformer& model);

}  // namespace ringworld
