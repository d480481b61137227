// What a real run of train and its dry run have in common.
#pragma once

#include <string>

#include "cli/options.h"
#include "training/batch_plan.h"
#include "training/trainer.h"

namespace ringworld {

// Everything that can be refused is, before anything is allocated: batches, model, sequence length
// and combination of options on so many ranks. Throws UsageError.
BatchPlan check_training(const TrainOptions& options, int world_size);

// How the model is distributed, in one line: "fsdp", or "fsdp on dp=2,pp=2,tp=1; 1f1b over stages
// of 2, 2 layers".
std::string layout_text(const TrainOptions& options, int world_size);

TrainerOptions trainer_options(const TrainOptions& options, const BatchPlan& batches);

}  // namespace ringworld
