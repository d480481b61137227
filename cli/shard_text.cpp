#include "cli/shard_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/shard_groups.h"

namespace ringworld {
namespace {

constexpr std::size_t width = 100;
constexpr std::size_t most_shards = 8;  // of a tensor, unless it is alone
constexpr std::size_t most_rows = 16;   // of the table of ranks
constexpr std::size_t most_ranks_text = 24;

// "PGO", "P--".
std::string letters(const std::vector<ModelState>& states) {
  std::string text;
  for (const ModelState state : all_model_states) {
    const bool has = std::ranges::find(states, state) != states.end();
    text += has ? "PGO"[static_cast<std::size_t>(state)] : '-';
  }
  return text;
}

std::string short_ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks_text(ranks);
  if (text.size() > most_ranks_text) {
    text = fmt::format("{} from {} to {}", ranks.size(), ranks.front(), ranks.back());
  }
  return text;
}

std::string line_of(const ShardGroup& group, std::size_t ranks_width) {
  const std::string bytes = to_string(group.bytes);
  std::string line = fmt::format("  {}  {:<6}{:<{}}  {:<12}{:>10}  ", letters(group.states),
                                 group.ranks.size() == 1 ? "rank" : "ranks",
                                 short_ranks_text(group.ranks), ranks_width, group.kind, bytes);
  const std::size_t slice_at = line.size();
  std::string slice = group.slice;
  if (const std::size_t comma = slice.find(", of these");
      comma != std::string::npos && slice_at + slice.size() > width) {
    slice.insert(comma + 1, fmt::format("\n{:{}}", "", slice_at - 1));
  }
  return line + slice + "\n";
}

}  // namespace

std::string tensors_text(const ShardMap& map) {
  const std::vector<FoldedTensor> tensors =
      fold_layers(map, map.tensors.size() == 1 ? 0 : most_shards);
  std::size_t ranks_width = 0;
  for (const FoldedTensor& tensor : tensors) {
    for (const ShardGroup& group : tensor.groups) {
      ranks_width = std::max(ranks_width, short_ranks_text(group.ranks).size());
    }
  }
  std::string text;
  for (const FoldedTensor& tensor : tensors) {
    text += fmt::format("{} {}\n", tensor.name, to_string(map.tensors[tensor.first].shape));
    for (const ShardGroup& group : tensor.groups) {
      text += line_of(group, ranks_width);
    }
  }
  return text;
}

std::string ranks_table(const ShardMap& map) {
  struct Row {
    OfStates<Bytes> bytes;
    std::vector<int> ranks;
  };
  std::vector<Row> rows;
  OfStates<Bytes> sum;
  for (std::size_t rank = 0; rank < map.charged.size(); ++rank) {
    const OfStates<Bytes>& bytes = map.charged[rank];
    auto row = std::ranges::find_if(
        rows, [&](const Row& other) { return other.bytes.values == bytes.values; });
    if (row == rows.end()) {
      row = rows.insert(row, {bytes, {}});
    }
    row->ranks.push_back(static_cast<int>(rank));
    for (const ModelState state : all_model_states) {
      sum[state] += bytes[state];
    }
  }
  Table table({{"each of ranks"},
               {"parameters", Align::right},
               {"gradients", Align::right},
               {"optimizer", Align::right},
               {"together", Align::right}});
  const auto add = [&table](const std::string& name, const OfStates<Bytes>& bytes) {
    Bytes together;
    std::vector<std::string> cells = {name};
    for (const ModelState state : all_model_states) {
      cells.push_back(to_string(bytes[state]));
      together += bytes[state];
    }
    cells.push_back(to_string(together));
    table.add_row(std::move(cells));
  };
  const std::size_t shown = rows.size() > most_rows ? most_rows - 1 : rows.size();
  for (std::size_t i = 0; i < shown; ++i) {
    add(short_ranks_text(rows[i].ranks), rows[i].bytes);
  }
  if (shown < rows.size()) {
    table.add_row({fmt::format("{} others: see --json", rows.size() - shown), "", "", "", ""});
  }
  add("all ranks", sum);

  std::int64_t elements = 0;
  for (const MappedTensor& tensor : map.tensors) {
    elements += tensor.shape.elements();
  }
  std::vector<std::string> copies = {"copies of the model"};
  for (const ModelState state : all_model_states) {
    const Bytes once = elements * map.element_bytes[state];
    copies.push_back(once.value == 0 ? std::string("-")
                                     : fmt::format("{:.2f}", static_cast<double>(sum[state].value) /
                                                                 static_cast<double>(once.value)));
  }
  copies.emplace_back();
  table.add_row(std::move(copies));
  return table.text();
}

}  // namespace ringworld
