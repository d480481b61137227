#include "planner/hardware.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "runtime/bytes.h"
#include "runtime/error.h"
#include "runtime/hardware.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

using Json = nlohmann::json;

constexpr MachineField fields[] = {
    {"memory", "bytes", &Machine::memory, true},
    {"memory_bandwidth", "bytes/s", &Machine::memory_bandwidth, true},
    {"f32", "FLOP/s", &Machine::f32, false},
    {"tf32", "FLOP/s", &Machine::tf32, false},
    {"bf16", "FLOP/s", &Machine::bf16, false},
    {"f16", "FLOP/s", &Machine::f16, false},
    {"fp8", "FLOP/s", &Machine::fp8, false},
    {"power", "W", &Machine::power, false},
    {"gpus_per_node", "GPUs", &Machine::gpus_per_node, true},
    {"within", "bytes/s", &Machine::within, true},
    {"between", "bytes/s", &Machine::between, true},
    {"card_latency", "s", &Machine::card_latency, false},
    {"host_memory", "bytes", &Machine::host_memory, false},
    {"host_link", "bytes/s", &Machine::host_link, true},
    {"adam_rate", "parameters/s", &Machine::adam_rate, true},
    {"nvme", "bytes", &Machine::nvme, false},
    {"nvme_read", "bytes/s", &Machine::nvme_read, true},
    {"nvme_write", "bytes/s", &Machine::nvme_write, true},
    {"node_power", "W", &Machine::node_power, false},
    {"price", "$/h", &Machine::price, false},
    {"processors", "", &Machine::processors, true},
    {"matmul_share", "of peak", &Machine::matmul_share, true},
    {"fp8_share", "of fp8 peak", &Machine::fp8_share, false},
    {"sustained", "of matmul_share", &Machine::sustained, true},
    {"flash_share", "of peak", &Machine::flash_share, true},
    {"memory_share", "of memory_bandwidth", &Machine::memory_share, true},
    {"contention", "of compute", &Machine::contention, false},
    {"kernel_seconds", "s", &Machine::kernel_seconds, false},
};

// Shares cannot be above the whole.
bool is_share(const MachineField& field) {
  return field.unit.starts_with("of ");
}

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

// Keys of a row that are no numbers.
constexpr std::string_view name_key = "name";
constexpr std::string_view like_key = "like";
constexpr std::string_view source_key = "source";
constexpr std::string_view node_key = "node";
constexpr std::string_view generation_key = "generation";
constexpr std::string_view nvlink_key = "nvlink";
constexpr std::string_view switch_key = "in_switch";

std::vector<std::string> row_keys() {
  std::vector<std::string> keys;
  for (const std::string_view key :
       {name_key, like_key, source_key, node_key, generation_key, nvlink_key, switch_key}) {
    keys.emplace_back(key);
  }
  for (const MachineField& field : fields) {
    keys.emplace_back(field.key);
  }
  return keys;
}

// A hardware file's row as it is read: what is wrong is said with file, row and key.
class Row {
 public:
  Row(const Json& json, const std::string& path, std::size_t index)
      : json_(json), where_(fmt::format("--hardware {}: machines[{}]", path, index)) {
    if (!json.is_object()) {
      throw UsageError(fmt::format("{} is no object; a row is {{\"name\": ..., ...}}", where_));
    }
    const std::vector<std::string> keys = row_keys();
    for (const auto& [key, value] : json.items()) {
      if (std::ranges::find(keys, key) == keys.end()) {
        throw UsageError(fmt::format("{}: unknown key \"{}\"; did you mean {}? There are: {}",
                                     where_, key, nearest(key, keys), fmt::join(keys, ", ")));
      }
    }
  }

  bool has(std::string_view key) const { return json_.contains(key); }

  std::string text(std::string_view key) const {
    if (!has(key) || !json_.at(key).is_string() || json_.at(key).get<std::string>().empty()) {
      refuse(key, "must be text, and not empty");
    }
    return json_.at(key).get<std::string>();
  }

  bool flag(std::string_view key) const {
    if (!json_.at(key).is_boolean()) {
      refuse(key, "must be true or false");
    }
    return json_.at(key).get<bool>();
  }

  double number(const MachineField& field) const {
    const Json& value = json_.at(field.key);
    if (value.is_string() && field.unit == "bytes") {
      return static_cast<double>(
          parse_bytes(value.get<std::string>(), fmt::format("{}.{}", where_, field.key)).value);
    }
    if (!value.is_number()) {
      refuse(field.key, fmt::format("must be a number{}",
                                    field.unit == "bytes" ? ", or a size such as \"80GB\"" : ""));
    }
    const double number = value.get<double>();
    if (!(number >= 0) || (field.required && number == 0) || !std::isfinite(number) ||
        number > 1e24) {
      refuse(field.key, fmt::format("must be {}, in {}", field.required ? "above 0" : "0 or more",
                                    field.unit.empty() ? "whole numbers" : field.unit));
    }
    if (is_share(field) && number > 1) {
      refuse(field.key, fmt::format("is a share {}, at most 1", field.unit));
    }
    if (field.key == "gpus_per_node" && number != std::floor(number)) {
      refuse(field.key, "must be a whole number");
    }
    return number;
  }

  [[noreturn]] void refuse(std::string_view key, const std::string& why) const {
    throw UsageError(fmt::format("{}: \"{}\": {} {}", where_, key,
                                 has(key) ? json_.at(key).dump() : "is missing and", why));
  }

 private:
  const Json& json_;
  std::string where_;
};

void fill(Machine& machine, const Row& row, const std::string& path) {
  const std::string source = fmt::format("{}: {}", path, row.text(source_key));
  if (row.has(node_key)) {
    machine.node = row.text(node_key);
  }
  if (row.has(generation_key)) {
    const std::string text = row.text(generation_key);
    const auto found = std::ranges::find_if(
        all_network_generations, [&](NetworkGeneration g) { return name_of(g) == text; });
    if (found == std::end(all_network_generations)) {
      row.refuse(generation_key, "must be one of: volta, ampere, hopper, blackwell");
    }
    machine.generation = *found;
    machine.network_source = source;
  }
  if (row.has(nvlink_key)) {
    machine.nvlink = row.flag(nvlink_key);
    machine.network_source = source;
  }
  if (row.has(switch_key)) {
    machine.in_switch = row.flag(switch_key);
    machine.network_source = source;
  }
  for (const MachineField& field : fields) {
    if (row.has(field.key)) {
      machine.*field.member = {row.number(field), source};
    }
  }
  for (const MachineField& field : fields) {
    if (field.required && (machine.*field.member).value == 0) {
      row.refuse(field.key, "without \"like\" every machine needs it");
    }
  }
  if (machine.bf16.value == 0 && machine.f16.value == 0) {
    row.refuse("bf16", "a machine needs a rate of 16-bit products, bf16 or f16");
  }
}

}  // namespace

double Machine::peak(DType format) const {
  switch (format) {
    case DType::bf16:
      return bf16.value;
    case DType::f16:
      return f16.value;
    case DType::f32:
      return f32.value;
    default:
      return 0;
  }
}

Network Machine::network() const {
  return {.generation = generation,
          .gpus_per_node = static_cast<int>(gpus_per_node.value),
          .nvlink = nvlink,
          .in_switch = in_switch,
          .within = within.value,
          .between = between.value,
          .card_latency = card_latency.value};
}

std::span<const MachineField> machine_fields() {
  return fields;
}

void Machines::read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (std::filesystem::is_regular_file(path)) {  // a device may have no end
    text << file.rdbuf();
  } else {
    file.setstate(std::ios::failbit);
  }
  if (!file) {
    throw DataError(fmt::format("--hardware: '{}': cannot be read; name a JSON file", path));
  }
  add(text.str(), path);
}

void Machines::add(std::string_view json, const std::string& path) {
  Json parsed;
  try {
    parsed = Json::parse(json);
  } catch (const Json::parse_error& error) {
    throw DataError(fmt::format("--hardware {}: is no JSON: {}", path, error.what()));
  }
  if (!parsed.is_object() || parsed.size() != 1 || !parsed.contains("machines") ||
      !parsed["machines"].is_array()) {
    throw UsageError(fmt::format(
        "--hardware {}: must hold one list, {{\"machines\": [{{\"name\": ..., \"source\": ...}}]}}",
        path));
  }
  for (std::size_t i = 0; i < parsed["machines"].size(); ++i) {
    const Row row(parsed["machines"][i], path, i);
    const std::string name = row.text(name_key);
    if (Machine* known = find_or_null(name)) {
      if (row.has(like_key)) {
        row.refuse(like_key, fmt::format("is for new machines; {} is in the table", known->name));
      }
      Machine changed = *known;
      fill(changed, row, path);
      *known = std::move(changed);
      continue;
    }
    Machine machine;
    if (row.has(like_key)) {
      machine = find(row.text(like_key));
    }
    machine.name = name;
    fill(machine, row, path);
    rows_.push_back(std::move(machine));
  }
}

Machine* Machines::find_or_null(std::string_view name) {
  const auto found = std::ranges::find_if(
      rows_, [&](const Machine& machine) { return upper(machine.name) == upper(name); });
  return found == rows_.end() ? nullptr : &*found;
}

const Machine& Machines::find(std::string_view name) const {
  const std::string wanted = upper(name);
  std::vector<std::string> names;
  for (const Machine& machine : rows_) {
    names.push_back(machine.name);
    if (upper(machine.name) == wanted) {
      return machine;
    }
  }
  throw UsageError(fmt::format("--gpu: '{}': unknown accelerator; did you mean {}? There are: {}",
                               name, holding_or_nearest(name, names), fmt::join(names, ", ")));
}

}  // namespace ringworld
