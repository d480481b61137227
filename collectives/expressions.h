// What a chunk holds, as an expression over the ranks' contributions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ringworld {

// Expressions over the ranks' contributions, each kept once: two are equal, operand by operand and
// in the same order, when their numbers are.
class Expressions {
 public:
  int leaf(int rank) { return number_of({-1, rank}); }
  int combined(int left, int right) { return number_of({left, right}); }

  // ((0 + 1) + 2) + ..., or with 1 + 0 in the middle, which has the same bits.
  bool is_in_rank_order(int expression, int ranks) {
    if (ranks == 1) {
      return expression == leaf(0);
    }
    return expression == in_order(combined(leaf(0), leaf(1)), ranks) ||
           expression == in_order(combined(leaf(1), leaf(0)), ranks);
  }

  std::string to_string(int number) const {
    const auto [left, right] = operands_[static_cast<std::size_t>(number)];
    return left < 0 ? fmt::format("{}", right)
                    : fmt::format("({} + {})", to_string(left), to_string(right));
  }

 private:
  int in_order(int expression, int ranks) {
    for (int rank = 2; rank < ranks; ++rank) {
      expression = combined(expression, leaf(rank));
    }
    return expression;
  }

  int number_of(std::pair<int, int> operands) {
    const auto [found, added] = numbers_.try_emplace(operands, static_cast<int>(operands_.size()));
    if (added) {
      operands_.push_back(operands);
    }
    return found->second;
  }

  std::map<std::pair<int, int>, int> numbers_;
  std::vector<std::pair<int, int>> operands_;  // a leaf is {-1, rank}
};

}  // namespace ringworld
