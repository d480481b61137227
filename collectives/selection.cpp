#include "collectives/selection.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/hierarchical.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

constexpr int any_number = std::numeric_limits<int>::max();

constexpr Bytes kib(std::int64_t amount) {
  return Bytes(amount << 10);
}

// Over shared memory a read costs little more than the bytes it moves, so everybody reads from
// everybody; with messages, few of them win for small buffers and few bytes for large ones. The
// last rule of an operation serves every call: of reductions, in the order of the ranks, too.
std::vector<SelectionRule> built_in_rules() {
  using enum Operation;
  const auto rule = [](Operation operation, const char* transport, std::optional<Bytes> up_to,
                       const char* algorithm) {
    return SelectionRule{
        .operation = operation, .transport = transport, .up_to = up_to, .algorithm = algorithm};
  };
  const std::optional<Bytes> any_size;
  return {
      {.operation = all_reduce,
       .transport = "shared",
       .ranks_to = 2,
       .up_to = kib(8),
       .algorithm =
           "one_shot"},  // there, in its own dtype, it needs no more scratch than small calls have
      rule(all_reduce, "shared", kib(4), "one_shot"),
      {.operation = all_reduce,
       .transport = "shared",
       .ranks_from = 4,
       .up_to = kib(64),
       .algorithm = "tree"},  // few messages: waiting is what costs with more ranks than cores
      rule(all_reduce, "shared", any_size, "direct"),
      rule(all_reduce, "*", kib(16), "recursive_doubling"),
      rule(all_reduce, "*", kib(256), "halving_doubling"),
      rule(all_reduce, "*", any_size, "ring"),
      rule(all_reduce, "*", any_size, "direct"),

      rule(reduce_scatter, "shared", any_size, "direct"),
      rule(reduce_scatter, "*", kib(64), "recursive_halving"),
      rule(reduce_scatter, "*", any_size, "ring"),
      rule(reduce_scatter, "*", any_size, "direct"),

      rule(all_gather, "shared", any_size, "direct"),
      rule(all_gather, "*", kib(64), "bruck"),
      rule(all_gather, "*", any_size, "ring"),

      rule(broadcast, "shared", any_size, "direct"),
      rule(broadcast, "*", kib(64), "tree"),
      rule(broadcast, "*", any_size, "ring"),

      rule(reduce, "shared", any_size, "direct"),
      rule(reduce, "*", any_size, "tree"),
      rule(reduce, "*", any_size, "direct"),

      rule(all_to_all, "shared", any_size, "direct"),
      rule(all_to_all, "*", any_size, "pairwise"),

      rule(gather, "*", any_size, "tree"),
      rule(scatter, "*", any_size, "tree"),
      rule(barrier, "*", any_size, "dissemination"),
  };
}

// "all_reduce over shared, 2 ranks, up to 4.00 KiB"
std::string described(const SelectionRule& rule) {
  std::string text(name_of(rule.operation));
  if (rule.transport != "*") {
    text += fmt::format(" over {}", rule.transport);
  }
  if (rule.ranks_from == rule.ranks_to) {
    text += fmt::format(", {} rank{}", rule.ranks_from, rule.ranks_from == 1 ? "" : "s");
  } else if (rule.ranks_to != any_number) {
    text += fmt::format(", {} to {} ranks", rule.ranks_from, rule.ranks_to);
  } else if (rule.ranks_from > 1) {
    text += fmt::format(", {} ranks or more", rule.ranks_from);
  }
  return rule.up_to ? text + fmt::format(", up to {}", to_string(*rule.up_to)) : text;
}

// Whose calls no rank knows the size of.
bool size_unknown(const Selection::Call& call) {
  return call.operation == Operation::all_to_all && !call.equal_counts;
}

bool is_for(const SelectionRule& rule, const Selection::Call& call) {
  return rule.operation == call.operation &&
         (rule.transport == "*" || rule.transport == call.transport) &&
         rule.ranks_from <= call.ranks && call.ranks <= rule.ranks_to &&
         (!rule.up_to || (!size_unknown(call) && call.bytes <= *rule.up_to));
}

// Why the algorithm cannot serve the call; empty when it can.
std::string obstacle(const Algorithm& algorithm, const Selection::Call& call) {
  if (std::string reason = algorithm.refuses(call.ranks); !reason.empty()) {
    return reason;
  }
  if (algorithm.equal_chunks && !call.equal_counts) {
    return "needs equal counts";
  }
  if (call.reproducible && reduces(call.operation) && !algorithm.rank_order) {
    return "does not add in the order of the ranks";
  }
  return {};
}

}  // namespace

const Selection& Selection::built_in() {
  static const Selection selection(built_in_rules(), "the built-in table");
  return selection;
}

Selection::Selection(std::vector<SelectionRule> rules, std::string source)
    : rules_(std::move(rules)), source_(std::move(source)) {
  std::vector<std::string> transports(std::begin(tuned_transports), std::end(tuned_transports));
  transports.emplace_back("*");
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const SelectionRule& rule = rules_[i];
    const std::string where = fmt::format("{}: rule {}: ", source_, i + 1);
    if (std::ranges::find(transports, rule.transport) == transports.end()) {
      throw UsageError(where + fmt::format("transport: there is no \"{}\"; did you mean {}? Choose "
                                           "one of: {}",
                                           rule.transport, nearest(rule.transport, transports),
                                           fmt::join(transports, ", ")));
    }
    if (rule.ranks_from < 1 || rule.ranks_to < rule.ranks_from) {
      throw UsageError(where + fmt::format("ranks: {} to {} are none; give the smaller number "
                                           "first, at least 1",
                                           rule.ranks_from, rule.ranks_to));
    }
    if (rule.up_to && *rule.up_to < Bytes(0)) {
      throw UsageError(where + fmt::format("up_to_bytes: {} is below zero", rule.up_to->value));
    }
    try {
      algorithms_.push_back(&find_or_compose(rule.operation, rule.algorithm));
    } catch (const UsageError& error) {
      throw UsageError(where + "algorithm: " + error.what());
    }
  }
}

std::optional<Selection::Choice> Selection::choose_here(const Call& call,
                                                        std::string& passed_over) const {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (!is_for(rules_[i], call)) {
      continue;
    }
    const Algorithm& algorithm = *algorithms_[i];
    if (const std::string reason = obstacle(algorithm, call); !reason.empty()) {
      passed_over += fmt::format("; passed over {}: {}", algorithm.name, reason);
      continue;
    }
    return Choice{&algorithm, fmt::format("rule {} of {}: {}{}", i + 1, source_,
                                          described(rules_[i]), passed_over)};
  }
  return std::nullopt;
}

Selection::Choice Selection::choose(const Call& call) const {
  std::string passed_over;
  if (std::optional<Choice> choice = choose_here(call, passed_over)) {
    return *choice;
  }
  return built_in().choose_here(call, passed_over).value();
}

}  // namespace ringworld
