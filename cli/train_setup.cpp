#include "cli/train_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/error.h"

namespace ringworld {

BatchPlan check_training(const TrainOptions& options, int world_size) {
  const ParallelOptions parallel = parallel_options(options, world_size);
  check_mesh(parallel.mesh, world_size);
  const BatchPlan batches =
      plan_batches(options.global_batch, options.micro_batch, parallel.mesh.data);
  constexpr std::int64_t most_tokens = std::int64_t{1} << 31;
  if (options.micro_batch > most_tokens / options.data.sequence_length) {
    throw UsageError(
        fmt::format("--micro-batch {} of sequences of {} tokens is more than {} tokens at once",
                    options.micro_batch, options.data.sequence_length, most_tokens));
  }
  make_model(options.model, options.precision)->check_sequence_length(options.data.sequence_length);
  if (const std::string why = refusal(options, world_size, batches.accumulation_steps);
      !why.empty()) {
    throw UsageError(why);
  }
  if (options.dump.step > 0 && parallel.mesh.model_ranks() > 1) {
    throw UsageError(fmt::format(
        "--dump-step writes tensors of a model that is whole on every rank; with --mesh {} none "
        "is. `verify` holds every rank's part against a single process",
        to_string(parallel.mesh)));
  }
  return batches;
}

std::string layout_text(const TrainOptions& options, int world_size) {
  const ParallelOptions parallel = parallel_options(options, world_size);
  if (!options.mesh) {
    return options.strategy.name;
  }
  std::string text = fmt::format("{} on {}{}", options.strategy.name, to_string(parallel.mesh),
                                 parallel.sequence_parallel ? " with sequence parallelism" : "");
  if (parallel.mesh.pipeline > 1) {
    const int chunks = chunks_of(parallel.pipeline);
    const auto model = make_model(options.model, options.precision);
    std::vector<std::int64_t> layers;
    for (const Part& part :
         divide_chain(*model, parallel.mesh.pipeline * chunks, parallel.pipeline.layers)) {
      layers.push_back(part.count);
    }
    --layers.front();  // the first unit of the chain and the last one are no layers
    --layers.back();
    text += fmt::format("; {} over {} of {} layers", parallel.pipeline.schedule,
                        chunks == 1 ? "stages" : fmt::format("stages with {} chunks", chunks),
                        fmt::join(layers, ", "));
  }
  return text;
}

TrainerOptions trainer_options(const TrainOptions& options, const BatchPlan& batches) {
  return {.batches = batches,
          .learning_rate = options.learning_rate,
          .clip_norm = options.clip_norm,
          .loss_scaling = options.loss_scaling,
          .seed = options.seed,
          .checkpoint = options.recomputation.checkpoint,
          .validation_interval = options.validation_interval,
          .validation_batches = options.validation_batches};
}

}  // namespace ringworld
