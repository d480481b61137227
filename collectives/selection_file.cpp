// Selection's rules as a JSON file: written for people who edit it, and read with every mistake
// named.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "collectives/selection.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view schema = "ringworld.tuning";
constexpr int version = 1;

// Reads one object; every message begins with where it stands.
class Reader {
 public:
  Reader(const Json& object, std::string where, std::vector<std::string> keys)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) {
      refuse(fmt::format("{} is no object; write {{...}} with the keys {}", object.dump(),
                         fmt::join(keys, ", ")));
    }
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::find(keys, key) == keys.end()) {
        refuse(fmt::format("unknown key \"{}\"; did you mean {}? There are: {}", key,
                           nearest(key, keys), fmt::join(keys, ", ")));
      }
    }
  }

  [[noreturn]] void refuse(const std::string& why) const { throw UsageError(where_ + why); }

  // nullptr when there is none.
  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  const Json& get(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) {
      refuse(fmt::format("the key \"{}\" is missing", key));
    }
    return *value;
  }

  std::string text(const char* key) const {
    const Json& value = get(key);
    if (!value.is_string()) {
      refuse(fmt::format("{}: {} is no text; put it in quotes", key, value.dump()));
    }
    return value.get<std::string>();
  }

  std::int64_t integer(const char* key, const Json& value, std::int64_t minimum,
                       std::int64_t maximum) const {
    const bool fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(maximum)
                          : value.is_number_integer() && value.get<std::int64_t>() <= maximum;
    if (!fits || value.get<std::int64_t>() < minimum) {
      refuse(fmt::format("{}: {} is no whole number from {} to {}", key, value.dump(), minimum,
                         maximum));
    }
    return value.get<std::int64_t>();
  }

 private:
  const Json& object_;
  const std::string where_;
};

SelectionRule read_rule(const Json& json, const std::string& where) {
  const Reader reader(json, where, {"operation", "transport", "ranks", "up_to_bytes", "algorithm"});
  SelectionRule rule;
  const std::string operation = reader.text("operation");
  try {
    rule.operation = parse_operation(operation);
  } catch (const UsageError& error) {
    reader.refuse(fmt::format("operation: {}", error.what()));
  }
  if (reader.find("transport") != nullptr) {
    rule.transport = reader.text("transport");
  }
  if (const Json* ranks = reader.find("ranks")) {
    const auto number = [&](const Json& value) {
      return static_cast<int>(reader.integer("ranks", value, 1, std::numeric_limits<int>::max()));
    };
    if (ranks->is_array() && ranks->size() == 2) {
      rule.ranks_from = number((*ranks)[0]);
      rule.ranks_to = number((*ranks)[1]);
    } else if (ranks->is_array()) {
      reader.refuse(
          fmt::format("ranks: {} is neither a number nor the first and the last of "
                      "several, [2, 8]",
                      ranks->dump()));
    } else {
      rule.ranks_from = rule.ranks_to = number(*ranks);
    }
  }
  if (const Json* bytes = reader.find("up_to_bytes")) {
    rule.up_to = bytes->is_string()
                     ? parse_bytes(bytes->get<std::string>(), where + "up_to_bytes")
                     : Bytes(reader.integer("up_to_bytes", *bytes, 0,
                                            std::numeric_limits<std::int64_t>::max()));
  }
  rule.algorithm = reader.text("algorithm");
  return rule;
}

std::string json_of(const SelectionRule& rule) {
  std::string text = fmt::format("{{\"operation\": \"{}\", \"transport\": \"{}\"",
                                 name_of(rule.operation), rule.transport);
  if (rule.ranks_from == rule.ranks_to) {
    text += fmt::format(", \"ranks\": {}", rule.ranks_from);
  } else if (rule.ranks_from > 1 || rule.ranks_to != std::numeric_limits<int>::max()) {
    text += fmt::format(", \"ranks\": [{}, {}]", rule.ranks_from, rule.ranks_to);
  }
  if (rule.up_to) {
    text += fmt::format(", \"up_to_bytes\": {}", rule.up_to->value);
  }
  return text + fmt::format(", \"algorithm\": \"{}\"}}", rule.algorithm);
}

}  // namespace

Selection Selection::parse(std::string_view text, const std::string& source) {
  Json json;
  try {
    json = Json::parse(text, nullptr, /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const Json::parse_error& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: ..."
    const std::string message = error.what();
    throw UsageError(fmt::format("{}: is no JSON: {}", source,
                                 message.substr(std::min(message.size(), message.find("] ") + 2))));
  }
  const Reader reader(json, source + ": ", {"schema", "version", "conditions", "rules"});
  if (reader.text("schema") != schema) {
    reader.refuse(fmt::format("schema: {} is not \"{}\": this is no file of rules",
                              reader.get("schema").dump(), schema));
  }
  if (reader.get("version") != version) {
    reader.refuse(fmt::format("version: {} is not {}, the one that this program reads",
                              reader.get("version").dump(), version));
  }
  const Json& list = reader.get("rules");
  if (!list.is_array()) {
    reader.refuse(fmt::format("rules: {} is no list; write [...]", list.dump()));
  }
  std::vector<SelectionRule> rules;
  for (const Json& rule : list) {
    rules.push_back(read_rule(rule, fmt::format("{}: rule {}: ", source, rules.size() + 1)));
  }
  Selection selection(std::move(rules), source);
  if (const Json* conditions = reader.find("conditions")) {
    if (!conditions->is_object()) {
      reader.refuse(fmt::format("conditions: {} is no object; write {{...}}", conditions->dump()));
    }
    selection.set_conditions(conditions->dump());
  }
  return selection;
}

Selection Selection::read(const std::string& path) {
  std::ifstream file(path);
  if (!file || !std::filesystem::is_regular_file(path)) {  // a device may have no end
    throw UsageError(
        fmt::format("{}: cannot be read; give a file of rules, as \"ringworld bench "
                    "--tune\" writes it",
                    path));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return parse(text.str(), path);
}

// One rule to a line.
std::string Selection::to_json() const {
  std::string text = fmt::format(
      "{{\n  \"schema\": \"{}\",\n  \"version\": {},\n  \"conditions\": {},\n  \"rules\": [",
      schema, version, conditions_);
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    text += fmt::format("{}\n    {}", i == 0 ? "" : ",", json_of(rules_[i]));
  }
  return text + "\n  ]\n}\n";
}

}  // namespace ringworld
