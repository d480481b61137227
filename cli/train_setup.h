// What a real run of train and its dry run have in common.
#pragma once

#include "cli/options.h"
#include "training/batch_plan.h"
#include "training/trainer.h"

namespace ringworld {

// Everything that can be refused is, before anything is allocated: batches, model, sequence length
// and combination of options on so many ranks. Throws UsageError.
BatchPlan check_training(const TrainOptions& options, int world_size);

TrainerOptions trainer_options(const TrainOptions& options, const BatchPlan& batches);

}  // namespace ringworld
