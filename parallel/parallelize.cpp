#include "parallel/parallelize.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "parallel/micro_batch.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

bool splits_backward(const PipelineKind& kind, PipelineShape shape) {
  shape.micro_batches = shape.stages;  // that is in every schedule's order, and few
  const PipelineSchedule schedule = emit_pipeline(kind, shape);
  return std::ranges::any_of(schedule.actions.front(), [](const PipelineAction& action) {
    return action.work == PipelineWork::backward_weight;
  });
}

}  // namespace

ParallelModel parallelize(const ModelOptions& model, DType dtype, const ParallelOptions& options,
                          Backend& backend, Communicator& world, std::uint64_t seed,
                          const Tiers& tiers) {
  if (const std::string why = refusal(options, world.world_size()); !why.empty()) {
    throw UsageError(why);
  }
  // 1. Who is who: a communicator for each axis.
  auto mesh = std::make_unique<Mesh>(world, options.mesh);

  // 2. Tensor parallelism: the model is built with this rank's slice of every layer.
  auto tensor = std::make_unique<TensorRanks>(mesh->tensor(), options.sequence_parallel);
  std::unique_ptr<Model> own = make_model(model, dtype, tensor.get());

  // 3. Pipeline parallelism: of its units, this rank keeps those of its stage.
  Stage stage(static_cast<int>(own->units().size()));
  if (options.mesh.pipeline > 1) {
    stage = Stage(mesh->pipeline(), options.pipeline, *own);
    own->keep(stage.kept());
  }

  // 4. Data parallelism, replicated or sharded: what is left gets its memory, and its gradients are
  // summed over the ranks that have the same slice of the same stage.
  std::unique_ptr<Strategy> strategy =
      make_strategy(options.strategy, *own, backend, mesh->data(), seed, tiers);

  // Recomputation and accumulation come with each step (micro_batch.h), offload of the optimizer
  // with the optimizer.
  return {.mesh = std::move(mesh),
          .tensor = std::move(tensor),
          .model = std::move(own),
          .stage = std::move(stage),
          .strategy = std::move(strategy)};
}

std::string refusal(const ParallelOptions& options, int world_size, int micro_batches) {
  try {
    check_mesh(options.mesh, world_size);
  } catch (const UsageError& error) {
    return error.what();
  }
  if (options.mesh.pipeline == 1) {
    if (!options.pipeline.layers.empty()) {
      return "--stages is for pipelines; add pp=N to --mesh";
    }
    if (options.pipeline.chunks > 1) {
      return "--chunks is for pipelines; add pp=N to --mesh";
    }
    if (options.pipeline.schedule != PipelineOptions().schedule) {
      return "--pipeline-schedule is for pipelines; add pp=N to --mesh";
    }
  } else {
    constexpr int most_micro_batches = 100'000;
    if (micro_batches > most_micro_batches) {
      return fmt::format(
          "a pipeline takes at most {} micro-batches in a step, not {}; raise "
          "--micro-batch or lower --global-batch",
          most_micro_batches, micro_batches);
    }
    const PipelineKind& kind = find_pipeline(options.pipeline.schedule);
    const PipelineShape shape{
        .stages = options.mesh.pipeline,
        .micro_batches = micro_batches > 0 ? micro_batches : options.mesh.pipeline,
        .chunks = chunks_of(options.pipeline)};
    if (std::string why = kind.refuses(shape); !why.empty()) {
      return fmt::format("--pipeline-schedule {}: {}", kind.name, why);
    }
    if (reduces_every_micro_batch(options.strategy) && splits_backward(kind, shape)) {
      // At the end of a micro-batch's backward, when they would be reduced, the gradients of
      // weights are not there yet.
      return fmt::format(
          "{} splits backward, but {} reduces after each micro-batch; use --reduce-gradients once",
          kind.name, options.strategy.name);
    }
  }
  if (options.sequence_parallel && options.mesh.tensor == 1) {
    return "--sequence-parallel divides activations over tensor ranks; add tp=N to --mesh";
  }
  return refusal(options.strategy, options.mesh.data);
}

void check_parallel_model(const ModelOptions& model, DType dtype, const ParallelOptions& options) {
  const TensorParallel tensor(0, options.mesh.tensor, options.sequence_parallel);
  const std::unique_ptr<Model> slice = make_model(model, dtype, &tensor);
  if (options.mesh.pipeline > 1) {
    divide_chain(*slice, options.mesh.pipeline * chunks_of(options.pipeline),
                 options.pipeline.layers);
  }
}

Bytes ParallelModel::expected_traffic(int micro_batches, const Shape& tokens,
                                      std::int64_t checkpoint) const {
  const MeshPlace& place = mesh->place();
  const auto own = [](bool counts, Bytes bytes) { return counts ? bytes : Bytes(0); };
  // Each term is of a group; its first rank tells it.
  Bytes expected = own(place.data == 0, strategy->expected_traffic(micro_batches));
  expected += own(place.tensor == 0,
                  micro_batches * tensor->expected_traffic(
                                      *model, tokens, recomputed_units(*model, stage, checkpoint)));
  const Bytes activations =
      tensor->rows(tokens.elements()).count * model->width() * size_of(model->dtype());
  expected += own(place.pipeline == 0, stage.expected_traffic(micro_batches, activations));
  for (const Shard& shard : strategy->shards()) {
    const Parameter& p = *shard.parameter;
    const auto sum = [&](Communicator& ranks) {
      return own(ranks.rank() == 0,
                 ranks.expected_traffic(Operation::all_reduce, shard.gradient.elements(),
                                        shard.gradient.dtype()));
    };
    if (p.gradient_sum == GradientSum::tensor_ranks) {
      expected += sum(mesh->tensor());
    } else if (p.gradient_sum == GradientSum::end_stages) {
      expected += sum(*mesh->ends());
    }
  }
  return Bytes(mesh->world().all_reduce_value(expected.value, ReduceOp::sum, "expected traffic"));
}

}  // namespace ringworld
