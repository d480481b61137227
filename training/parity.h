// The oracle: does a strategy on P ranks compute what a single process would?
//
// Rank 0 trains a second copy of the model alone, on whole global batches in one piece, as the
// control. After every step each rank holds its loss, every gradient and every parameter against
// the control's, tensor by tensor. The error of a tensor a against the control's b is |a - b| / |b|
// in the 2-norm; the ratio is (a . b) / (b . b), which shows a factor that got lost or was applied
// twice. Where gradients are sharded, and where a rank has a slice of a tensor, each rank looks at
// its own part a of it: both products are over that part, while |b| is of the whole.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "training/batch_plan.h"
#include "training/data.h"
#include "training/training_state.h"

namespace ringworld {

// A fault to be found: this rank's gradient of this tensor, or its part of it, complete and
// reduced, is multiplied with the factor in the first step, before anything looks at it.
struct Plant {
  std::string tensor;
  double factor = 2;
  std::int64_t rank = 0;
};

struct ParityOptions {
  TrainingSetup training = {};
  double learning_rate = 1e-3;
  double clip_norm = 0;  // 0: gradients are not clipped
  BatchPlan batches = {};
  std::int64_t checkpoint = 0;  // MicroBatchOptions
  double loss_scale = 1;        // of both sides
  std::int64_t steps = 3;
  double bound = 0;  // on every relative error
  std::optional<Plant> plant = {};
};

// A relative error that rounding alone may cause; faults are factors, far above it. In the 16-bit
// formats a parameter may be rounded to the neighbour of the control's when a sum differs in its
// last bits, so that is one rounding of the format. Where tensor ranks add up activations, or their
// gradients, each has rounded its partial sum, which the control has not: one rounding more at each
// such sum that a micro-batch comes by, of 8 bits in f16 too, since parameters that began at zero
// are below its normal numbers for some steps.
double rounding_bound(const TrainingSetup& training);

// How far one tensor, or the loss, is off.
struct Difference {
  std::string what;  // "loss", "gradient of NAME", "parameter NAME"
  std::int64_t step = 0;
  int rank = 0;  // the one where it is largest
  double relative_error = 0;
  double ratio = 1;
};

struct ParityResult {
  Difference largest;
  bool bit_equal = true;  // losses, gradients and parameters, on every rank
  std::vector<Difference>
      broken;  // over the bound, at the first comparison that has any; worst first
  std::int64_t steps_compared = 0;
  std::int64_t tensors = 0;      // compared in each step, as gradient and as parameter
  std::int64_t comparisons = 0;  // in all: 1 + 2 * tensors in each complete step
  // Of everything that was compared, in order: two strategies with the same digest had the same
  // bits in every loss, gradient and parameter.
  std::uint64_t digest = 0;
  // For gradients and parameters, by all ranks in all complete steps: measured, and by the
  // strategy's formula.
  Bytes bytes_sent;
  Bytes bytes_expected;
  // Parameters, gradients and optimizer state between steps, of all ranks together: by the ledgers,
  // and by theory.
  Bytes state_held;
  Bytes state_expected;

  bool passed() const {
    return broken.empty() && bytes_sent == bytes_expected && state_held == state_expected;
  }
};

// Every rank calls, and every rank returns the same. The control's memory is on a device of its
// own, without a budget, with a backend that `make_backend` makes on rank 0, as it makes those of
// tiers. Throws UsageError when the plant names no tensor of the model or no rank of the world, or
// when the strategy leaves that rank no part of it. Stops at the first comparison that breaks the
// bound.
ParityResult check_parity(const ParityOptions& options, const TokenDataset& data, Backend& backend,
                          Communicator& communicator,
                          const TrainingState::MakeBackend& make_backend);

}  // namespace ringworld
