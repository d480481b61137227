#include "training/dump_format.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* schema = "ringworld.dump";
constexpr int version = 1;
constexpr DumpKind all_kinds[] = {DumpKind::forward,  DumpKind::loss, DumpKind::backward,
                                  DumpKind::gradient, DumpKind::norm, DumpKind::parameter};

DumpKind parse_kind(const std::string& text) {
  for (const DumpKind kind : all_kinds) {
    if (name_of(kind) == text) {
      return kind;
    }
  }
  throw DataError(fmt::format("unknown kind '{}'", text));
}

Json json_of(const DumpEntry& e) {
  return {{"order", e.order},         {"name", e.name},
          {"kind", name_of(e.kind)},  {"unit", e.unit},
          {"position", e.position},   {"first_sequence", e.first_sequence},
          {"sequences", e.sequences}, {"dtype", name_of(e.dtype)},
          {"shape", e.shape},         {"offset", e.offset},
          {"bytes", e.bytes}};
}

DumpEntry entry_of(const Json& json) {
  DumpEntry e{.order = json.at("order"),
              .kind = parse_kind(json.at("kind")),
              .name = json.at("name"),
              .unit = json.at("unit"),
              .position = json.at("position"),
              .first_sequence = json.at("first_sequence"),
              .sequences = json.at("sequences"),
              .dtype = parse_dtype(json.at("dtype").get<std::string>()),
              .shape = json.at("shape"),
              .offset = json.at("offset"),
              .bytes = json.at("bytes")};
  std::int64_t elements = 1;
  for (const std::int64_t size : e.shape) {
    elements *= size;
  }
  if (e.bytes != elements * size_of(e.dtype).value || e.offset < 0 || e.sequences < 0 ||
      (e.sequences > 0 && elements % e.sequences != 0) || !is_floating(e.dtype)) {
    throw DataError(fmt::format("'{}' does not fit its own shape", e.name));
  }
  return e;
}

DumpIndex index_of(const Json& json) {
  if (json.value("schema", "") != schema || json.value("version", 0) != version) {
    throw DataError(fmt::format("its schema is not {} version {}", schema, version));
  }
  DumpIndex index{.rank = json.at("rank"),
                  .world_size = json.at("world_size"),
                  .step = json.at("step"),
                  .strategy = json.at("strategy"),
                  .model = json.at("model"),
                  .parameters = json.at("parameters"),
                  .precision = parse_dtype(json.at("precision").get<std::string>()),
                  .loss_scale = json.at("loss_scale"),
                  .shards = {},
                  .entries = {}};
  for (const Json& shard : json.at("shards")) {
    index.shards.push_back({.parameter = shard.at("parameter"),
                            .first_element = shard.at("first_element"),
                            .elements = shard.at("elements")});
  }
  for (const Json& entry : json.at("entries")) {
    index.entries.push_back(entry_of(entry));
  }
  return index;
}

DumpIndex read_index(const std::string& path) {
  try {
    return index_of(Json::parse(std::ifstream(path)));
  } catch (const std::exception& error) {
    throw DataError(fmt::format(
        "{}: cannot be read as the index of a dump: {}; dump the step again", path, error.what()));
  }
}

// Ranks of the files in the directory named rank-NNNN.SUFFIX.
std::vector<int> ranks_in(const std::string& directory, std::string_view suffix) {
  std::vector<int> ranks;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = file.path().filename().string();
    const std::size_t digits = name.find_first_not_of("0123456789", 5);
    if (name.starts_with("rank-") && digits != std::string::npos && digits > 5 && digits < 14 &&
        name.substr(digits) == fmt::format(".{}", suffix)) {
      ranks.push_back(std::stoi(name.substr(5)));
    }
  }
  std::ranges::sort(ranks);
  return ranks;
}

template <typename T, typename Widen>
std::vector<double> widened(const std::vector<char>& bytes, Widen widen) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(values.data()));
  std::vector<double> result(values.size());
  std::ranges::transform(values, result.begin(), widen);
  return result;
}

std::vector<double> decode(const std::vector<char>& bytes, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return widened<double>(bytes, [](double x) { return x; });
    case DType::f32:
      return widened<float>(bytes, [](float x) { return static_cast<double>(x); });
    case DType::bf16:
      return widened<bf16>(bytes, [](bf16 x) { return static_cast<double>(to_float(x)); });
    case DType::f16:
      return widened<f16>(bytes, [](f16 x) { return static_cast<double>(to_float(x)); });
    default:
      throw std::logic_error(fmt::format("a dump of {}", name_of(dtype)));
  }
}

}  // namespace

std::string_view name_of(DumpKind kind) {
  static constexpr std::string_view names[] = {"forward",  "loss", "backward",
                                               "gradient", "norm", "parameter"};
  return names[static_cast<std::size_t>(kind)];
}

std::string describe(DumpKind kind, std::string_view name) {
  switch (kind) {
    case DumpKind::forward:
      return fmt::format("output of {}", name);
    case DumpKind::backward:
      return fmt::format("gradient passed down by {}", name);
    case DumpKind::gradient:
      return fmt::format("gradient of {}", name);
    case DumpKind::parameter:
      return fmt::format("parameter {}", name);
    case DumpKind::loss:
      return "loss";
    case DumpKind::norm:
      return "gradient norm";
  }
  throw std::logic_error("describe: a kind of tensor that does not exist");
}

Json json_of(const DumpIndex& index) {
  Json json = {{"schema", schema},
               {"version", version},
               {"rank", index.rank},
               {"world_size", index.world_size},
               {"step", index.step},
               {"strategy", index.strategy},
               {"model", index.model},
               {"parameters", index.parameters},
               {"precision", name_of(index.precision)},
               {"loss_scale", index.loss_scale},
               {"shards", Json::array()},
               {"entries", Json::array()}};
  for (const DumpShard& shard : index.shards) {
    json["shards"].push_back({{"parameter", shard.parameter},
                              {"first_element", shard.first_element},
                              {"elements", shard.elements}});
  }
  for (const DumpEntry& entry : index.entries) {
    json["entries"].push_back(json_of(entry));
  }
  return json;
}

std::string dump_path(const std::string& directory, int rank, std::string_view suffix) {
  return (std::filesystem::path(directory) / fmt::format("rank-{:04}.{}", rank, suffix)).string();
}

bool holds_dump(const std::string& directory) {
  return !ranks_in(directory, "json").empty() || !ranks_in(directory, "bin").empty();
}

Dump::Dump(std::string directory) : directory_(std::move(directory)) {
  const std::vector<int> found = ranks_in(directory_, "json");
  if (found.empty()) {
    throw DataError(fmt::format(
        "{}: holds no dump, there is no rank-0000.json in it; give a directory that a dump was "
        "written to",
        directory_));
  }
  for (const int rank : found) {
    ranks_.push_back(read_index(dump_path(directory_, rank, "json")));
    if (ranks_.back().rank != rank) {
      throw DataError(fmt::format("{}: is of rank {}; the file was renamed",
                                  dump_path(directory_, rank, "json"), ranks_.back().rank));
    }
  }
  check_ranks();
}

void Dump::check_ranks() const {
  const DumpIndex& first = ranks_.front();
  for (int rank = 0; rank < first.world_size; ++rank) {
    if (std::ranges::find(ranks_, rank, &DumpIndex::rank) == ranks_.end()) {
      throw DataError(fmt::format(
          "{}: is missing, though the dump is of {} ranks; copy the files of all ranks into one "
          "directory, or dump the step again",
          dump_path(directory_, rank, "json"), first.world_size));
    }
  }
  for (const DumpIndex& index : ranks_) {
    if (index.world_size != first.world_size || index.rank >= first.world_size ||
        index.step != first.step || index.strategy != first.strategy ||
        index.model != first.model || index.parameters != first.parameters) {
      throw DataError(fmt::format(
          "{}: is of another dump than {}: step {} of {} on {} ranks, not step {} of {} on {}",
          dump_path(directory_, index.rank, "json"), dump_path(directory_, first.rank, "json"),
          index.step, index.model, index.world_size, first.step, first.model, first.world_size));
    }
    std::int64_t expected = 0;
    for (const DumpEntry& entry : index.entries) {
      expected = std::max(expected, entry.offset + entry.bytes);
    }
    const std::string path = dump_path(directory_, index.rank, "bin");
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) {
      throw DataError(fmt::format("{}: cannot be read: {}", path, error.message()));
    }
    if (static_cast<std::int64_t>(size) != expected) {
      throw DataError(
          fmt::format("{}: has {} bytes, but its index speaks of {}; dump the step again", path,
                      size, expected));
    }
  }
}

std::vector<double> Dump::read(int rank, const DumpEntry& entry, std::int64_t first,
                               std::int64_t count) const {
  const std::int64_t size = size_of(entry.dtype).value;
  if (first < 0 || count < 0 || first + count > entry.elements()) {
    throw std::out_of_range(fmt::format("elements {} to {} of {}, which has {}", first,
                                        first + count, entry.name, entry.elements()));
  }
  const std::string path = dump_path(directory_, rank, "bin");
  std::ifstream file(path, std::ios::binary);
  file.seekg(entry.offset + first * size);
  std::vector<char> bytes(static_cast<std::size_t>(count * size));
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    throw DataError(fmt::format("{}: cannot be read at byte {}; dump the step again", path,
                                entry.offset + first * size));
  }
  return decode(bytes, entry.dtype);
}

}  // namespace ringworld
