#include "runtime/nearest.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace ringworld {

namespace {

// Characters to insert, leave out, replace, or exchange with their neighbour (optimal string
// alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the distances between the first i characters of a and the first j of b.
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = std::move(last);
    last = std::move(row);
  }
  return last[b.size()];
}

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string holding_or_nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string wanted = upper(word);
  std::vector<std::string> uppers;
  std::string holding;
  for (const std::string& candidate : candidates) {
    uppers.push_back(upper(candidate));
    if (!wanted.empty() && uppers.back().find(wanted) != std::string::npos) {
      holding += (holding.empty() ? "" : " or ") + candidate;
    }
  }
  if (!holding.empty() || candidates.empty()) {
    return holding;
  }
  const auto near = std::ranges::find(uppers, nearest(wanted, uppers));
  return candidates[static_cast<std::size_t>(near - uppers.begin())];
}

}  // namespace ringworld
