// A memory plan of our own runtime, held against what it does.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "planner/layout.h"
#include "planner/runtime_memory.h"
#include "planner/transformer.h"
#include "runtime/transport.h"

namespace ringworld {

// The training that a plan is of. Throws UsageError for what runtime_refusal() refuses.
TrainOptions training_of(const Transformer& model, const Layout& layout,
                         const RuntimeOptions& options);

// The command that runs it here.
std::string command_of(const Transformer& model, const Layout& layout,
                       const RuntimeOptions& options);

// One item, planned and measured.
struct Verified {
  std::string item;
  Bytes planned;
  Bytes measured;
  bool exact;  // it has to be equal; otherwise within 2 %

  bool holds() const;
};

struct PlanVerification {
  std::string against;  // "dry run of rank 0 of 8"
  std::vector<Verified> items;
  bool real = false;  // steps, no dry run

  bool holds() const;
};

// The dry run of each pipeline stage's first rank; and, on as many ranks as the plan has, with a
// model so small that they take seconds, two real steps, in which rank 0 is looked at. Every rank
// calls; what is not run is not there.
std::vector<PlanVerification> verify_memory(const Transformer& model, const Layout& layout,
                                            const RuntimeOptions& options, Transport& transport);

}  // namespace ringworld
