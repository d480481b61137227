// The options of one subcommand: declared once, with default, unit and sentence; parsed by CLI11
// from the command line and from a TOML file, checked, and shown as help.
//
// Every error is a UsageError that names the option (and the file it came from), the value, and
// what would be right. Nothing is printed, and nothing exits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/bytes.h"

namespace CLI {
class App;
}

namespace ringworld {

// Which real numbers an option takes.
struct Interval {
  double minimum;
  double maximum;
  bool minimum_included = true;
  bool maximum_included = true;
};
std::string to_string(const Interval& interval);  // "above 0", "0 or more and below 1"

// The parts between commas, of all values: "1,2" "3" is 1, 2 and 3.
std::vector<std::string> split_list(const std::vector<std::string>& values);

class OptionSet {
 public:
  static constexpr std::int64_t largest_integer = 1'000'000'000'000;

  // `command` as the user types it: "train".
  OptionSet(std::string command, std::string summary);
  ~OptionSet();
  OptionSet(const OptionSet&) = delete;
  OptionSet& operator=(const OptionSet&) = delete;

  // The options declared from here on stand under this heading.
  void group(std::string heading) { group_ = std::move(heading); }
  // What is typed before the options, where that is not "mpiexec -n RANKS ringworld COMMAND".
  void usage(std::string line);
  // What stands at the end of the help.
  void examples(std::string text);

  // Declarations. `name` is without dashes, `unit` what stands for the value in the help ("N",
  // "SECONDS"). `value` holds the default and must outlive the set.
  void text(const std::string& name, std::string& value, const std::string& unit,
            const std::string& sentence);
  // One or more, each as it is: paths.
  void texts(const std::string& name, std::vector<std::string>& values, const std::string& unit,
             const std::string& sentence);
  // Whole numbers of at least `minimum` and at most 10^12, or what T can hold.
  template <typename T>
  void integer(const std::string& name, T& value, std::int64_t minimum, const std::string& unit,
               const std::string& sentence);
  void number(const std::string& name, double& value, const Interval& interval,
              const std::string& unit, const std::string& sentence);
  // "25MiB"; Bytes(0) as the default stands for no limit.
  void size(const std::string& name, Bytes& value, const std::string& sentence);
  // One of the known names.
  void choice(const std::string& name, std::string& value, std::vector<std::string> known,
              const std::string& sentence);
  template <typename T, typename Known>
  void choice(const std::string& name, T& value, const Known& known, const std::string& sentence);
  // False unless given, without a value.
  void flag(const std::string& name, bool& value, const std::string& sentence);
  // true or false, as a value.
  void boolean(const std::string& name, bool& value, const std::string& sentence);
  // Anything else: `set` gets the values of one option and throws UsageError through refuse.
  void custom(const std::string& name, const std::string& unit, const std::string& default_text,
              const std::string& sentence, bool many,
              std::function<void(const std::vector<std::string>&)> set);

  // Throws the UsageError "--name: 'value' ...: why".
  [[noreturn]] void refuse(const std::string& name, const std::string& value,
                           const std::string& why) const;
  // The same for a value that is none of the known ones; names the nearest.
  [[noreturn]] void refuse_unknown(const std::string& name, const std::string& value,
                                   std::span<const std::string> known) const;

  // For custom options: one number, or refused under this name.
  std::int64_t parse_integer(const std::string& name, const std::string& text, std::int64_t minimum,
                             std::int64_t maximum = largest_integer) const;
  double parse_number(const std::string& name, const std::string& text,
                      const Interval& interval) const;

  // Fills the values: from the command line (without program and command), and from the file given
  // by --config where the command line says nothing. `commands` are the sections that such a file
  // may hold beside this command's.
  void parse(const std::vector<std::string>& arguments, std::span<const std::string> commands);
  // What was asked for, wherever it came from: the same text for every rank that was asked for the
  // same. Without --config and what a machine may differ in, --threads.
  std::string settings() const;
  std::string help() const;

 private:
  std::string label(const std::string& name) const;
  std::vector<std::string> names() const;
  void check_names(const std::vector<std::string>& arguments) const;
  void parse_arguments(std::vector<std::string> arguments);
  std::vector<std::string> arguments_of_config(std::span<const std::string> commands);

  std::string command_;
  std::unique_ptr<CLI::App> app_;
  std::string group_;
  std::string config_;                                     // path, empty without
  std::map<std::string, std::vector<std::string>> given_;  // values by option name
  std::map<std::string, std::string> origin_;  // of option names set by the file: its path
};

template <typename T>
void OptionSet::integer(const std::string& name, T& value, std::int64_t minimum,
                        const std::string& unit, const std::string& sentence) {
  static constexpr auto maximum = static_cast<std::int64_t>(
      std::min<std::uint64_t>(largest_integer, std::numeric_limits<T>::max()));
  custom(name, unit, std::to_string(value), sentence, false,
         [this, name, minimum, &value](const std::vector<std::string>& values) {
           value = static_cast<T>(parse_integer(name, values.front(), minimum, maximum));
         });
}

template <typename T, typename Known>
void OptionSet::choice(const std::string& name, T& value, const Known& known,
                       const std::string& sentence) {
  std::vector<std::string> names;
  for (const T& one : known) {
    names.emplace_back(name_of(one));
  }
  std::string unit;
  for (const std::string& one : names) {
    unit += (unit.empty() ? "" : "|") + one;
  }
  custom(name, unit, std::string(name_of(value)), sentence, false,
         [this, name, &value, known, names](const std::vector<std::string>& values) {
           for (const T& one : known) {
             if (name_of(one) == values.front()) {
               value = one;
               return;
             }
           }
           refuse_unknown(name, values.front(), names);
         });
}

}  // namespace ringworld
