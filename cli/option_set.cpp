#include "cli/option_set.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/config_file.h"
#include "cli/help_formatter.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

// The whole text as a number, or nothing.
template <typename T>
std::errc convert(const std::string& text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc()) {
    return error;
  }
  return end == text.data() + text.size() ? std::errc() : std::errc::invalid_argument;
}

}  // namespace

std::vector<std::string> split_list(const std::vector<std::string>& values) {
  std::vector<std::string> parts;
  for (const std::string& value : values) {
    for (const std::string& part : CLI::detail::split(value, ',')) {
      parts.push_back(part);
    }
  }
  return parts;
}

std::string to_string(const Interval& interval) {
  std::string text;
  if (std::isfinite(interval.minimum)) {
    text = interval.minimum_included ? fmt::format("{} or more", interval.minimum)
                                     : fmt::format("above {}", interval.minimum);
  }
  if (std::isfinite(interval.maximum)) {
    text += text.empty() ? "" : " and ";
    text += fmt::format("{} {}", interval.maximum_included ? "at most" : "below", interval.maximum);
  }
  return text.empty() ? "that is finite" : text;
}

OptionSet::OptionSet(std::string command, std::string summary)
    : command_(std::move(command)),
      app_(std::make_unique<CLI::App>(std::move(summary),
                                      "mpiexec -n RANKS ringworld " + command_)) {
  app_->allow_extras();  // to name them ourselves
  app_->formatter(std::make_shared<HelpFormatter>());
  group("Help");
  app_->set_help_flag("-h,--help", "Print this text and end.")->group(group_);
  text("config", config_, "FILE.toml",
       "Take options from this file, where every option is a key, at the top or under a section "
       "named as the command; the command line overrides it.");
}

OptionSet::~OptionSet() = default;

void OptionSet::usage(std::string line) {
  app_->name(std::move(line));
}

void OptionSet::examples(std::string text) {
  app_->footer(std::move(text));
}

std::string OptionSet::help() const {
  return app_->help();
}

// --- Declaring ----------------------------------------------------------------------------------

void OptionSet::custom(const std::string& name, const std::string& unit,
                       const std::string& default_text, const std::string& sentence, bool many,
                       std::function<void(const std::vector<std::string>&)> set) {
  const std::string help =
      default_text.empty() ? sentence : fmt::format("{} [{}]", sentence, default_text);
  CLI::Option* option = app_->add_option(
      "--" + name,
      [this, name, set](const CLI::results_t& values) {
        for (const std::string& value : values) {
          if (value.empty()) {
            refuse(name, value, "a value is missing");
          }
        }
        set(values);
        given_[name] = values;
        return true;
      },
      help);
  option->group(group_)->type_name(unit);
  if (many) {
    option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args();
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  } else {
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

void OptionSet::text(const std::string& name, std::string& value, const std::string& unit,
                     const std::string& sentence) {
  custom(name, unit, value, sentence, false,
         [&value](const std::vector<std::string>& values) { value = values.front(); });
}

void OptionSet::texts(const std::string& name, std::vector<std::string>& values,
                      const std::string& unit, const std::string& sentence) {
  custom(name, unit + "...", fmt::format("{}", fmt::join(values, " ")), sentence, true,
         [&values](const std::vector<std::string>& given) { values = given; });
}

void OptionSet::number(const std::string& name, double& value, const Interval& interval,
                       const std::string& unit, const std::string& sentence) {
  custom(name, unit, fmt::format("{}", value), sentence, false,
         [this, name, interval, &value](const std::vector<std::string>& values) {
           value = parse_number(name, values.front(), interval);
         });
}

void OptionSet::size(const std::string& name, Bytes& value, const std::string& sentence) {
  custom(name, "SIZE", value == Bytes(0) ? "no limit" : to_string(value), sentence, false,
         [this, name, &value](const std::vector<std::string>& values) {
           value = parse_bytes(values.front(), label(name));
         });
}

void OptionSet::choice(const std::string& name, std::string& value, std::vector<std::string> known,
                       const std::string& sentence) {
  custom(name, "NAME", value, fmt::format("{} Known: {}.", sentence, fmt::join(known, ", ")), false,
         [this, name, &value, known](const std::vector<std::string>& values) {
           if (std::find(known.begin(), known.end(), values.front()) == known.end()) {
             refuse_unknown(name, values.front(), known);
           }
           value = values.front();
         });
}

void OptionSet::flag(const std::string& name, bool& value, const std::string& sentence) {
  const auto set = [this, name, &value](const std::string& text) {
    if (text != "true" && text != "false") {
      refuse(name, text, "is given without a value; in a file, it is true or false");
    }
    value = text == "true";
    given_[name] = {text};
  };
  app_->add_flag("--" + name, sentence)->each(set)->group(group_);
}

void OptionSet::boolean(const std::string& name, bool& value, const std::string& sentence) {
  custom(name, "true|false", value ? "true" : "false", sentence, false,
         [this, name, &value](const std::vector<std::string>& values) {
           if (values.front() != "true" && values.front() != "false") {
             refuse(name, values.front(), "give true or false");
           }
           value = values.front() == "true";
         });
}

// --- Errors -------------------------------------------------------------------------------------

std::string OptionSet::label(const std::string& name) const {
  const auto origin = origin_.find(name);
  return origin == origin_.end() ? "--" + name : fmt::format("--{} (in {})", name, origin->second);
}

void OptionSet::refuse(const std::string& name, const std::string& value,
                       const std::string& why) const {
  throw UsageError(fmt::format("{}: '{}': {}", label(name), value, why));
}

void OptionSet::refuse_unknown(const std::string& name, const std::string& value,
                               std::span<const std::string> known) const {
  refuse(name, value,
         fmt::format("is unknown; did you mean {}? Known: {}", nearest(value, known),
                     fmt::join(known, ", ")));
}

std::int64_t OptionSet::parse_integer(const std::string& name, const std::string& text,
                                      std::int64_t minimum, std::int64_t maximum) const {
  std::int64_t value = 0;
  const std::errc error = convert(text, value);
  if (error == std::errc::invalid_argument) {
    refuse(name, text, fmt::format("is not a whole number of {} or more", minimum));
  }
  if (error == std::errc() && value < minimum) {
    refuse(name, text, fmt::format("is out of range, it must be {} or more", minimum));
  }
  if (error != std::errc() || value > maximum) {
    refuse(name, text, fmt::format("is out of range, it must be at most {}", maximum));
  }
  return value;
}

double OptionSet::parse_number(const std::string& name, const std::string& text,
                               const Interval& interval) const {
  double value = 0;
  if (convert(text, value) != std::errc() || !std::isfinite(value)) {
    refuse(name, text, fmt::format("is not a number {}", to_string(interval)));
  }
  const bool low = interval.minimum_included ? value < interval.minimum : value <= interval.minimum;
  const bool high =
      interval.maximum_included ? value > interval.maximum : value >= interval.maximum;
  if (low || high) {
    refuse(name, text, fmt::format("is out of range, it must be {}", to_string(interval)));
  }
  return value;
}

// --- Parsing ------------------------------------------------------------------------------------

std::vector<std::string> OptionSet::names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    names.push_back(option->get_lnames().front());
  }
  return names;
}

void OptionSet::check_names(const std::vector<std::string>& arguments) const {
  const std::vector<std::string> known = names();
  for (const std::string& argument : arguments) {
    if (argument == "--") {
      return;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      continue;
    }
    const bool negative_number = std::isdigit(static_cast<unsigned char>(argument[1])) != 0;
    if (negative_number || argument == "-h") {
      continue;
    }
    const std::string dashed = argument.substr(0, argument.find('='));
    const std::size_t first = dashed.find_first_not_of('-');
    const std::string name = first == std::string::npos ? "" : dashed.substr(first);
    const bool value_for_help = name == "help" && dashed != argument;
    if (dashed.starts_with("--") && !value_for_help &&
        std::find(known.begin(), known.end(), name) != known.end()) {
      continue;
    }
    throw UsageError(
        fmt::format("{}: unknown option; did you mean --{}? (ringworld {} --help lists all)",
                    dashed, nearest(name, known), command_));
  }
}

void OptionSet::parse_arguments(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    throw UsageError(
        fmt::format("{} (ringworld {} --help shows how it is used)", error.what(), command_));
  }
  const std::vector<std::string> rest = app_->remaining();
  if (!rest.empty()) {
    throw UsageError(
        fmt::format("'{}': unexpected; what follows ringworld {} are options, each with "
                    "two dashes (ringworld {} --help lists them)",
                    rest.front(), command_, command_));
  }
}

void OptionSet::parse(const std::vector<std::string>& arguments,
                      std::span<const std::string> commands) {
  check_names(arguments);
  parse_arguments(arguments);
  if (config_.empty()) {
    return;
  }
  // Once more with what the file adds: first the file, so that its values go through the same
  // checks.
  std::vector<std::string> all = arguments_of_config(commands);
  all.insert(all.end(), arguments.begin(), arguments.end());
  parse_arguments(std::move(all));
}

std::string OptionSet::settings() const {
  std::string text;
  for (const auto& [name, values] : given_) {
    if (name != "config" && name != "threads") {
      text += fmt::format("{}={}\n", name, fmt::join(values, " "));
    }
  }
  return text;
}

std::vector<std::string> OptionSet::arguments_of_config(std::span<const std::string> commands) {
  std::vector<std::string> known = names();
  std::erase_if(known, [](const std::string& name) { return name == "help" || name == "config"; });

  // A key under the command's section goes before the same key at the top.
  std::map<std::string, ConfigEntry> entries;
  for (ConfigEntry& entry : read_config(config_)) {
    if (!entry.section.empty() &&
        std::find(commands.begin(), commands.end(), entry.section) == commands.end()) {
      throw UsageError(fmt::format(
          "{}: [{}]: unknown section; did you mean [{}]? Sections are named as the commands: {}",
          config_, entry.section, nearest(entry.section, commands), fmt::join(commands, ", ")));
    }
    if (!entry.section.empty() && entry.section != command_) {
      continue;
    }
    if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
      throw UsageError(fmt::format("{}: {}: unknown key; did you mean {}?", config_, entry.key,
                                   nearest(entry.key, known)));
    }
    const auto [earlier, first] = entries.try_emplace(entry.key, entry);
    if (first) {
      continue;
    }
    if (earlier->second.section == entry.section) {
      throw UsageError(fmt::format("{}: {}: given twice", config_, entry.key));
    }
    if (!entry.section.empty()) {
      earlier->second = std::move(entry);
    }
  }

  std::vector<std::string> arguments;
  for (const auto& [key, entry] : entries) {
    const CLI::Option* option = app_->get_option("--" + key);
    if (option->count() > 0) {
      continue;  // the command line has it
    }
    if (entry.values.empty() || (entry.values.size() > 1 && option->get_expected_max() == 1)) {
      throw UsageError(
          fmt::format("{}: {}: takes one value, found {}", config_, key, entry.values.size()));
    }
    origin_[key] = config_;
    for (const std::string& value : entry.values) {
      if (value.empty()) {
        refuse(key, value, "a value is missing");
      }
      arguments.push_back("--" + key + "=" + value);
    }
  }
  return arguments;
}

}  // namespace ringworld
