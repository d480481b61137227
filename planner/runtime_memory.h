// What our own runtime holds while it trains a GPT-2 or a Llama on a mesh: the second accounting,
// which follows what models/, parallel/ and training/ keep, and held against the dry run, which
// runs their code.
//
// It differs from the published one. Outputs of norms and of activation functions are computed
// again, so that a GPT-2's block saves 6 C + H elements of a token and one number for each head,
// not 34 C bytes and the scores; gradients and optimizer state are in 32 bits beside 16-bit
// weights; a unit's parameters are gathered one unit ahead, and a tied table stays from its first
// to its last user.
#pragma once

#include "planner/layout.h"
#include "planner/transformer.h"
#include "runtime/device.h"

namespace ringworld {

struct RuntimeOptions {
  int threads = 1;           // of each rank: a kernel's workspace is theirs
  int optimizer_states = 2;  // as in MemoryOptions
  int stage = 0;             // of the pipeline
};

struct RuntimeMemory {
  int stage = 0;       // of the pipeline
  Ledger device = {};  // peaks of one step, as DryRun has them
  // Between steps, exactly; parameters and optimizer alone. What is on its way is not counted.
  Ledger host = {};
  Ledger file = {};
};

// Of the stage's first rank along the other axes, whose shards are the largest; all ranks are on
// one machine. Throws UsageError for what runtime_refusal() refuses.
RuntimeMemory plan_runtime_memory(const Transformer& model, const Layout& layout,
                                  const RuntimeOptions& options = {});
// Of the stage that holds the most at once, the first of equal ones.
RuntimeMemory plan_fullest_stage(const Transformer& model, const Layout& layout,
                                 const RuntimeOptions& options = {});

}  // namespace ringworld
