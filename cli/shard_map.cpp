#include "cli/shard_map.h"

#include <memory>
#include <unordered_map>

#include "runtime/meta_backend.h"
#include "runtime/transport.h"

namespace ringworld {
namespace {

// What is whole between steps is bound to the parameter; of the rest there is the shard alone.
Range held(const Tensor& bound, const Range& shard) {
  return bound.defined() ? Range{0, bound.elements()} : shard;
}

Parameter without_memory(const Parameter& parameter) {
  Parameter copy = parameter;
  copy.value = {};
  copy.gradient = {};
  return copy;
}

}  // namespace

std::string_view name_of(ModelState state) {
  static constexpr std::string_view names[] = {"parameters", "gradients", "optimizer"};
  return names[static_cast<std::size_t>(state)];
}

ShardMap map_shards(const TrainingSetup& setup, int world_size) {
  ShardMap map{.mesh = parallel_options(setup, world_size).mesh};
  std::unordered_map<std::string, std::size_t> index;
  const std::unique_ptr<Model> whole = make_model(setup.model, setup.precision);
  for (const auto& parameter : whole->parameters()) {
    index[parameter->name] = map.tensors.size();
    map.tensors.push_back({.name = parameter->name, .shape = parameter->whole_shape});
  }
  const DType gradient = gradient_dtype(setup.precision);
  const int copies =
      UpdateRule(setup.optimizer).states() + (gradient == setup.precision ? 0 : 1);  // the master
  map.element_bytes = {{size_of(setup.precision), size_of(gradient), copies * size_of(gradient)}};

  const auto make_backend = [](std::shared_ptr<Device> device) {
    return make_meta_backend(std::move(device), /*threads=*/1);
  };
  for (int rank = 0; rank < world_size; ++rank) {
    const auto device = make_meta_device(Bytes(0));
    const auto backend = make_backend(device);
    const auto transport = make_null_transport(rank, world_size);
    Communicator communicator(*transport, *backend);
    const TrainingState state(setup, *backend, communicator, make_backend, /*dry_run=*/true);

    std::unordered_map<const Parameter*, Range> shards;
    for (const Shard& shard : state.strategy().shards()) {
      shards[shard.parameter] = {shard.first_element, shard.value.elements()};
    }
    for (const auto& parameter : state.model().parameters()) {
      const Range shard = shards[parameter.get()];
      map.tensors[index.at(parameter->name)].parts.push_back(
          {.rank = rank,
           .parameter = without_memory(*parameter),
           .held = {{held(parameter->value, shard), held(parameter->gradient, shard), shard}}});
    }
    const Ledger ledger = device->ledger();
    map.charged.push_back(
        {{ledger.held_in(Category::parameters), ledger.held_in(Category::gradients),
          ledger.held_in(Category::optimizer)}});
  }
  return map;
}

}  // namespace ringworld
