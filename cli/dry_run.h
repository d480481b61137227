// Dry runs: the training of one rank of any world, in this process, without its data, its memory or
// the other ranks.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "cli/options.h"
#include "collectives/communicator.h"
#include "training/data.h"

namespace ringworld {

struct DryRun {
  Ledger device;  // peaks of a step that is not the first, when nothing is made for good any more
  Bytes device_peak;  // at any time, the start included
  std::optional<Ledger> host;
  std::optional<Ledger> file;
  OffloadTraffic moved;         // between tiers, in that step
  TrafficByLabel traffic;       // of this rank in that step, by label
  Flops flops;                  // of this rank in that step
  std::int64_t parameters = 0;  // of the model
};

// What training reads: the data given, else some synthetic that is read again and again.
Datasets given_or_synthetic_data(const TrainOptions& options, std::int64_t vocabulary);

// Plays `rank` of `world_size` through the code of a real run. Throws what that would throw.
DryRun dry_run(const TrainOptions& options, int rank, int world_size);

// For a run that does not fit its memory, what follows the message: which budgets of tiers would
// do, and which changes would make it fit the device, each tried by dry runs. `rank` is the one
// that failed.
std::string what_would_fit(const TrainOptions& options, int rank, int world_size);

}  // namespace ringworld
