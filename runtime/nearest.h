// Which of the known names did the user mean?
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ringworld {

// The candidate that takes the fewest edits to reach from `word` (insert, delete or replace one
// character; Levenshtein, 1966), the earlier one of two as near. Empty when there are no
// candidates.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// Upper and lower case are the same: all candidates that hold the word, "H100-80GB or H100-96GB"
// for "h100", else the nearest.
std::string holding_or_nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace ringworld
