// Which algorithm serves a call when the caller names none: `auto`.
//
// A table of rules, read from the top. The first whose operation, transport, ranks and bytes are
// those of the call, and whose algorithm can serve it, decides; when none does, the built-in table
// goes on, which has an answer for every call. Rules are written by hand or made from measurements,
// and kept in a JSON file:
//
//   {
//     "schema": "ringworld.tuning",
//     "version": 1,
//     "conditions": {...},  // of the measurements; any object
//     "rules": [
//       {"operation": "all_reduce", "transport": "mpi", "ranks": 2, "up_to_bytes": 16384,
//        "algorithm": "recursive_doubling"},
//       {"operation": "all_reduce", "ranks": [3, 8], "algorithm": "ring"}
//     ]
//   }
//
// Without transport, ranks or up_to_bytes a rule is for any; up_to_bytes may be a text, "16KiB".
// Comments are allowed.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.h"
#include "runtime/bytes.h"

namespace ringworld {

// What rules may name beside "*", any: the transports' names.
inline constexpr std::string_view tuned_transports[] = {"shared", "mixed", "mpi", "threads"};

struct SelectionRule {
  Operation operation;
  std::string transport = "*";
  int ranks_from = 1;  // both included
  int ranks_to = std::numeric_limits<int>::max();
  // Calls of up to so many bytes, these included, where a call's bytes are those of its whole
  // buffer: of as many elements as Algorithm::elements_sent calls n. Nothing: of any size.
  std::optional<Bytes> up_to = {};
  std::string algorithm;  // or a composition, see find_or_compose

  bool operator==(const SelectionRule&) const = default;
};

// How long a call took with one algorithm.
struct Measurement {
  Operation operation;
  std::string transport;
  int ranks;
  Bytes bytes;  // as in SelectionRule
  std::string algorithm;
  double seconds;
};

class Selection {
 public:
  // The call that an algorithm is looked for; the same on every rank.
  struct Call {
    Operation operation;
    std::string_view transport;
    int ranks;
    Bytes bytes;
    // Every rank's block is equally long. In an all_to_all without equal counts no rank knows the
    // bytes of the others: only rules for any size serve it.
    bool equal_counts = true;
    bool reproducible = false;  // reductions must add in the order of the ranks
  };
  struct Choice {
    const Algorithm* algorithm;
    // "rule 3 of tune.json: all_reduce over shared, 2 ranks, up to 4.00 KiB", and why rules before
    // it were passed over.
    std::string reason;
  };

  static const Selection& built_in();
  // Throws UsageError that names file, rule, key and, for what is unknown, the nearest that is
  // known.
  static Selection read(const std::string& path);
  // The same from a text that `source` stands for in messages and reasons.
  static Selection parse(std::string_view text, const std::string& source);

  // No rules: whatever the built-in table says.
  Selection() = default;
  // Throws UsageError when a rule is none: an unknown algorithm or transport, ranks that end before
  // they begin.
  Selection(std::vector<SelectionRule> rules, std::string source);

  // What `parse` and `read` read.
  std::string to_json() const;

  const std::vector<SelectionRule>& rules() const { return rules_; }
  // A JSON object that says how the rules came to be.
  const std::string& conditions() const { return conditions_; }
  void set_conditions(std::string json) { conditions_ = std::move(json); }

  // Takes about a microsecond and writes a text: to be kept for calls that repeat.
  Choice choose(const Call& call) const;

 private:
  std::optional<Choice> choose_here(const Call& call, std::string& passed_over) const;

  std::vector<SelectionRule> rules_;
  std::vector<const Algorithm*> algorithms_;  // of the rules
  std::string source_ = "no rules";
  std::string conditions_ = "{}";
};

// Rules that choose what was fastest, for each operation, transport and number of ranks of the
// measurements, followed by those of `base` that are for others. There are as few rules as
// possible when a rule's algorithm may be up to 3 % slower than the fastest at a measured size;
// between two sizes they change at the geometric mean. Give only what may be chosen: no
// measurements of the `mpi` reference unless it may serve calls.
//
// Throws std::invalid_argument for a time that is not above zero.
Selection tuned(std::span<const Measurement> measurements, const Selection& base);

}  // namespace ringworld
