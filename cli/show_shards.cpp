// ringworld show shards: which slice of which tensor lives on which rank.
#include <iostream>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "cli/shard_map.h"
#include "cli/shard_page.h"
#include "cli/shard_text.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Shape& shape) {
  Json json = Json::array();
  for (int axis = 0; axis < shape.axes(); ++axis) {
    json.push_back(shape[axis]);
  }
  return json;
}

Json json_of(const OfStates<Bytes>& bytes) {
  Json json;
  for (const ModelState state : all_model_states) {
    json[name_of(state)] = bytes[state].value;
  }
  return json;
}

Json json_of(const ShardMap& map, const RankPart& part) {
  const Parameter& parameter = part.parameter;
  Json json = {{"rank", part.rank}, {"shape", json_of(parameter.shape)}};
  if (!parameter.parts.empty()) {
    Json runs = Json::array();
    for (const Part& run : parameter.parts) {
      runs.push_back({{"first", run.first}, {"count", run.count}});
    }
    json["split"] = {{"axis", parameter.split_axis}, {"parts", std::move(runs)}};
  }
  for (const ModelState state : all_model_states) {
    const Range& held = part.held[state];
    json[name_of(state)] = {{"first", held.first},
                            {"count", held.count},
                            {"bytes", (held.count * map.element_bytes[state]).value}};
  }
  return json;
}

Json json_of(const ShowShardsOptions& o, const ShardMap& map) {
  Json tensors = Json::array();
  for (const MappedTensor& tensor : map.tensors) {
    Json parts = Json::array();
    for (const RankPart& part : tensor.parts) {
      parts.push_back(json_of(map, part));
    }
    tensors.push_back(
        {{"name", tensor.name}, {"shape", json_of(tensor.shape)}, {"parts", std::move(parts)}});
  }
  Json ranks = Json::array();
  for (int rank = 0; rank < o.world; ++rank) {
    const MeshPlace place = place_in(map.mesh, rank);
    ranks.push_back({{"rank", rank},
                     {"data", place.data},
                     {"pipeline", place.pipeline},
                     {"tensor", place.tensor},
                     {"bytes", json_of(map.charged[static_cast<std::size_t>(rank)])}});
  }
  return {{"schema", "ringworld.show_shards"},
          {"version", 1},
          {"conditions",
           {{"model", o.model.name},
            {"precision", name_of(o.precision)},
            {"optimizer", name_of(o.optimizer.kind)},
            {"strategy", o.strategy.name},
            {"reduce_gradients", name_of(o.strategy.reduce_gradients)},
            {"shard_group", o.strategy.shard_group},
            {"mesh", to_string(map.mesh)},
            {"sequence_parallel", o.sequence_parallel},
            {"pipeline_schedule", o.pipeline.schedule}}},
          {"tensors", std::move(tensors)},
          {"ranks", std::move(ranks)}};
}

std::string title_of(const ShowShardsOptions& o, const ShardMap& map) {
  return fmt::format("{} on {}{}: {} in {}, {}", o.strategy.name, to_string(map.mesh),
                     o.sequence_parallel ? " with sequence parallelism" : "", o.model.name,
                     name_of(o.precision), name_of(o.optimizer.kind));
}

}  // namespace

ExitCode run_show_shards(const ShowShardsOptions& o, Transport& transport) {
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  check_writable("--html", o.html);
  check_writable("--json", o.json);
  ShardMap map = map_shards(o, o.world);
  if (!o.tensor.empty()) {
    std::erase_if(map.tensors, [&](const MappedTensor& tensor) { return tensor.name != o.tensor; });
  }
  const std::string title = title_of(o, map);
  if (o.json != "-" && o.html != "-") {
    std::cout << fmt::format(
        "{}\n\nBetween steps ranks hold of each tensor, P its parameters, G gradients, O optimizer "
        "state:\n\n{}",
        title, tensors_text(map));
    if (o.tensor.empty()) {
      std::cout << "\n" << ranks_table(map);
    }
    std::cout << std::flush;
  }
  write_file("--html", o.html, o.html.empty() ? "" : to_html(map, title));
  if (!o.json.empty()) {
    write_json(o.json, json_of(o, map));
  }
  return ExitCode::ok;
}

}  // namespace ringworld
