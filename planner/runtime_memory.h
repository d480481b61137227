// What our own runtime holds while it trains a GPT-2: the second accounting, in closed form from
// what models/, parallel/ and training/ keep, and held against the dry run, which runs their code.
//
// It differs from the published one. Layer norms' and GELU's outputs are computed again, so that a
// block saves 6 C + H elements of a token and one number for each head, not 34 C bytes and the
// scores; gradients and optimizer state are in 32 bits beside 16-bit weights; a unit's parameters
// are gathered one unit ahead, and a tied table stays from its first to its last user.
#pragma once

#include <array>
#include <string>

#include "planner/layout.h"
#include "planner/transformer.h"
#include "runtime/device.h"

namespace ringworld {

struct RuntimeOptions {
  int threads = 1;           // of each rank: a kernel's workspace is theirs
  int optimizer_states = 2;  // as in MemoryOptions
};

struct RuntimeMemory {
  Ledger device;  // peaks of one step, as DryRun has them
  // Between steps, exactly; parameters and optimizer alone. What is on its way is not counted.
  Ledger host;
  Ledger file;
};

// Why our runtime does not train this; empty: it does.
std::string runtime_refusal(const Transformer& model, const Layout& layout);

// Of rank 0, whose shards are the largest; all ranks are on one machine. Throws UsageError for
// what runtime_refusal() refuses.
RuntimeMemory plan_runtime_memory(const Transformer& model, const Layout& layout,
                                  const RuntimeOptions& options = {});

}  // namespace ringworld
