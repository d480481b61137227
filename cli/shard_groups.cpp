#include "cli/shard_groups.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

namespace ringworld {
namespace {

// Which elements of the whole: what ranks with the same have in common.
struct Place {
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;  // along the split axis
  std::int64_t first = 0;
  std::int64_t count = 0;
  auto operator<=>(const Place&) const = default;
};

Place place_of(const RankPart& part, ModelState state) {
  Place place{.parts = {}, .first = part.held[state].first, .count = part.held[state].count};
  for (const Part& p : part.parameter.parts) {
    place.parts.emplace_back(p.first, p.count);
  }
  return place;
}

std::string kind_of(bool whole, std::size_t copies) {
  if (copies == 1) {
    return whole ? "whole" : "shard";
  }
  return fmt::format("{} x{}", whole ? "replica" : "shard", copies);
}

// Groups of the same states as one.
ShardGroup summed_up(const std::vector<ShardGroup>& groups,
                     const std::vector<std::int64_t>& elements) {
  const auto [least, most] = std::ranges::minmax(elements);
  ShardGroup sum = groups.front();
  sum.slice =
      fmt::format("{} slices of {} elements", groups.size(),
                  least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most));
  std::set<int> ranks;
  for (const ShardGroup& group : groups) {
    ranks.insert(group.ranks.begin(), group.ranks.end());
    sum.bytes = std::max(sum.bytes, group.bytes);
  }
  sum.ranks.assign(ranks.begin(), ranks.end());
  return sum;
}

// "h.0.attn.bias" is the layer 0 of "h", with "attn.bias" in it; -1: of no layer.
struct LayerName {
  std::string chain;
  int layer = -1;
  std::string rest = {};
};

LayerName layer_name(const std::string& name) {
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const std::size_t end = name.find_first_not_of("0123456789", dot + 1);
    if (end != std::string::npos && end > dot + 1 && name[end] == '.') {
      return {.chain = name.substr(0, dot),
              .layer = std::stoi(name.substr(dot + 1, end - dot - 1)),
              .rest = name.substr(end + 1)};
    }
  }
  return {.chain = name};
}

// The tensors of one layer, or one that is of none.
struct Layer {
  std::string chain;
  int first = -1;
  int last = -1;
  std::size_t first_tensor = 0;
  std::vector<std::string> names = {};  // within the layer
  std::vector<Shape> shapes = {};
  std::vector<std::vector<ShardGroup>> groups = {};

  bool continues_as(const Layer& next) const {
    return last >= 0 && chain == next.chain && last + 1 == next.first && names == next.names &&
           shapes == next.shapes && groups == next.groups;
  }
};

}  // namespace

std::string slice_text(const MappedTensor& tensor, const RankPart& part, const Range& held) {
  if (held.count == 0) {
    return "-";
  }
  const Parameter& p = part.parameter;
  const bool all = held.count == p.shape.elements();
  const std::string elements = fmt::format("elements {}:{}", held.first, held.first + held.count);
  if (p.parts.empty()) {
    return fmt::format("{} of {}", all ? "all" : elements, to_string(tensor.shape));
  }
  std::string text = p.split_axis == 0 ? "rows" : "columns";
  for (const Part& run : p.parts) {
    text += fmt::format(" {}:{}", run.first, run.first + run.count);
  }
  return all ? text : fmt::format("{}, of these {}", text, elements);
}

std::vector<ShardGroup> group_shards(const ShardMap& map, const MappedTensor& tensor,
                                     std::size_t most_shards) {
  struct Group {
    std::vector<ModelState> states;
    const RankPart* example;
  };
  // States whose elements are on the same ranks share a group.
  std::map<std::pair<Place, std::vector<int>>, Group> found;
  for (const ModelState state : all_model_states) {
    if (map.element_bytes[state].value == 0) {
      continue;
    }
    std::map<Place, std::vector<const RankPart*>> holders;
    for (const RankPart& part : tensor.parts) {
      if (part.held[state].count > 0) {
        holders[place_of(part, state)].push_back(&part);
      }
    }
    for (const auto& [place, parts] : holders) {
      std::vector<int> ranks;
      std::ranges::transform(parts, std::back_inserter(ranks), &RankPart::rank);
      found.try_emplace({place, std::move(ranks)}, Group{{}, parts.front()})
          .first->second.states.push_back(state);
    }
  }
  struct Same {
    std::vector<ShardGroup> groups;
    std::vector<std::int64_t> elements;  // of each
  };
  std::map<std::vector<ModelState>, Same> by_states;
  for (const auto& [key, group] : found) {
    const auto& [place, ranks] = key;
    Bytes bytes;
    for (const ModelState state : group.states) {
      bytes += place.count * map.element_bytes[state];
    }
    Same& same = by_states[group.states];
    same.elements.push_back(place.count);
    same.groups.push_back({.states = group.states,
                           .ranks = ranks,
                           .slice = slice_text(tensor, *group.example, {place.first, place.count}),
                           .kind = kind_of(place.count == tensor.shape.elements(), ranks.size()),
                           .bytes = bytes});
  }
  std::vector<ShardGroup> result;
  for (auto& [states, same] : by_states) {
    if (most_shards > 0 && same.groups.size() > most_shards) {
      result.push_back(summed_up(same.groups, same.elements));
      continue;
    }
    std::ranges::stable_sort(same.groups, {}, [](const ShardGroup& group) { return group.ranks; });
    std::ranges::move(same.groups, std::back_inserter(result));
  }
  return result;
}

std::vector<FoldedTensor> fold_layers(const ShardMap& map, std::size_t most_shards) {
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    const MappedTensor& tensor = map.tensors[i];
    const LayerName name = layer_name(tensor.name);
    if (name.layer < 0 || layers.empty() || layers.back().chain != name.chain ||
        layers.back().first != name.layer) {
      layers.push_back(
          {.chain = name.chain, .first = name.layer, .last = name.layer, .first_tensor = i});
    }
    layers.back().names.push_back(name.rest);
    layers.back().shapes.push_back(tensor.shape);
    layers.back().groups.push_back(group_shards(map, tensor, most_shards));
  }
  std::vector<Layer> folded;
  for (Layer& layer : layers) {
    if (!folded.empty() && folded.back().continues_as(layer)) {
      folded.back().last = layer.last;
    } else {
      folded.push_back(std::move(layer));
    }
  }
  std::vector<FoldedTensor> result;
  for (Layer& layer : folded) {
    for (std::size_t i = 0; i < layer.names.size(); ++i) {
      const std::size_t first = layer.first_tensor + i;
      result.push_back({.name = layer.first == layer.last
                                    ? map.tensors[first].name
                                    : fmt::format("{}.{}..{}.{}", layer.chain, layer.first,
                                                  layer.last, layer.names[i]),
                        .first = first,
                        .groups = std::move(layer.groups[i])});
    }
  }
  return result;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    // As far as the ranks are equally far apart; two that are no neighbours are no run.
    std::size_t last = first;
    const int step = first + 1 < ranks.size() ? ranks[first + 1] - ranks[first] : 1;
    while (last + 1 < ranks.size() && ranks[last + 1] - ranks[last] == step) {
      ++last;
    }
    if (step > 1 && last < first + 2) {
      last = first;
    }
    text += text.empty() ? "" : " ";
    text += first == last ? fmt::format("{}", ranks[first])
            : step == 1   ? fmt::format("{}-{}", ranks[first], ranks[last])
                          : fmt::format("{}-{} by {}", ranks[first], ranks[last], step);
    first = last + 1;
  }
  return text;
}

}  // namespace ringworld
