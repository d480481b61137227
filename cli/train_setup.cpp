#include "cli/train_setup.h"

#include "runtime/error.h"

namespace ringworld {

BatchPlan check_training(const TrainOptions& options, int world_size) {
  const BatchPlan batches = plan_batches(options.global_batch, options.micro_batch, world_size);
  make_model(options.model, options.precision)->check_sequence_length(options.data.sequence_length);
  if (const std::string why = refusal(options, world_size); !why.empty()) {
    throw UsageError(why);
  }
  return batches;
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
