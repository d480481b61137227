#include "parallel/mesh.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {
namespace {

int& size_of_axis(MeshShape& shape, std::string_view name) {
  std::string axis(name);
  std::ranges::transform(axis, axis.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (axis == "dp") {
    return shape.data;
  }
  if (axis == "pp") {
    return shape.pipeline;
  }
  if (axis == "tp") {
    return shape.tensor;
  }
  if (axis == "ep" || axis == "cp") {
    throw UsageError(fmt::format(
        "--mesh: axis '{}' can be planned only (plan --expert, --context-parallel); here there are "
        "dp (data), pp (pipeline) and tp (tensor)",
        name));
  }
  throw UsageError(fmt::format(
      "--mesh: unknown axis '{}'; did you mean '{}'? There are dp (data), pp (pipeline) and tp "
      "(tensor)",
      name, nearest(axis, std::vector<std::string>{"dp", "pp", "tp"})));
}

int rank_at(const MeshShape& shape, const MeshPlace& place) {
  return (place.data * shape.pipeline + place.pipeline) * shape.tensor + place.tensor;
}

}  // namespace

std::string to_string(const MeshShape& shape) {
  return fmt::format("dp={},pp={},tp={}", shape.data, shape.pipeline, shape.tensor);
}

MeshShape parse_mesh(std::string_view text) {
  MeshShape shape;
  std::vector<const int*> seen;
  if (text.empty()) {
    throw UsageError("--mesh is empty; write, for example, dp=2,pp=2,tp=2");
  }
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t comma = std::min(text.find(',', first), text.size());
    const std::string_view item = text.substr(first, comma - first);
    first = comma + 1;
    const std::size_t equals = item.find('=');
    const std::string_view axis = item.substr(0, equals);
    const std::string_view digits =
        equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    int size = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    const bool is_number = error == std::errc() && end == digits.data() + digits.size();
    int& place = size_of_axis(shape, axis);
    if (!is_number || size < 1 || size > 1'000'000) {
      throw UsageError(fmt::format(
          "--mesh: '{}' is no size of an axis; write, for example, dp=2,pp=2,tp=2", item));
    }
    if (std::ranges::find(seen, &place) != seen.end()) {
      throw UsageError(fmt::format("--mesh: axis {} is there twice, in '{}'", axis, text));
    }
    seen.push_back(&place);
    place = size;
  }
  return shape;
}

void check_mesh(const MeshShape& shape, int world_size) {
  if (std::int64_t{shape.data} * shape.pipeline * shape.tensor == world_size) {
    return;
  }
  const std::int64_t of_model = std::int64_t{shape.pipeline} * shape.tensor;
  const std::string remedy = world_size % of_model == 0
                                 ? fmt::format("use dp={},pp={},tp={}", world_size / of_model,
                                               shape.pipeline, shape.tensor)
                                 : fmt::format("start a multiple of pp x tp = {} ranks", of_model);
  throw UsageError(fmt::format("--mesh: dp {} x pp {} x tp {} = {} ranks, but there {} {}; {}",
                               shape.data, shape.pipeline, shape.tensor,
                               std::int64_t{shape.data} * of_model, world_size == 1 ? "is" : "are",
                               world_size, remedy));
}

std::vector<MeshShape> meshes_of(int world_size) {
  std::vector<MeshShape> all;
  for (int data = world_size; data >= 1; --data) {
    for (int pipeline = 1; world_size % data == 0 && pipeline <= world_size / data; ++pipeline) {
      if (world_size / data % pipeline == 0) {
        all.push_back({data, pipeline, world_size / data / pipeline});
      }
    }
  }
  return all;
}

MeshPlace place_in(const MeshShape& shape, int rank) {
  return {.data = rank / shape.model_ranks(),
          .pipeline = rank / shape.tensor % shape.pipeline,
          .tensor = rank % shape.tensor};
}

Mesh::Mesh(Communicator& world, const MeshShape& shape)
    : world_(world), shape_(shape), place_(place_in(shape, world.rank())) {
  check_mesh(shape, world.world_size());
  const auto along = [&](int MeshPlace::*axis, int size) {
    std::vector<int> ranks;
    MeshPlace place = place_;
    for (place.*axis = 0; place.*axis < size; ++(place.*axis)) {
      ranks.push_back(rank_at(shape, place));
    }
    return world.subgroup(ranks);
  };
  if (shape.data != world.world_size()) {
    own_data_ = along(&MeshPlace::data, shape.data);
  }
  data_ = own_data_ != nullptr ? own_data_.get() : &world;
  pipeline_ = along(&MeshPlace::pipeline, shape.pipeline);
  tensor_ = along(&MeshPlace::tensor, shape.tensor);
  std::vector<int> of_model;
  for (int i = 0; i < shape.model_ranks(); ++i) {
    of_model.push_back(place_.data * shape.model_ranks() + i);
  }
  model_ = world.subgroup(of_model);
  if (shape.pipeline > 1 && (is_first_stage() || is_last_stage())) {
    MeshPlace first = place_;
    MeshPlace last = place_;
    first.pipeline = 0;
    last.pipeline = shape.pipeline - 1;
    ends_ = world.subgroup({rank_at(shape, first), rank_at(shape, last)});
  }
}

}  // namespace ringworld
