// What forward keeps of one layer for its backward, on a GPU: the published accounting
// (Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022,
// section 4), item by item, so that it holds for other shapes and formats, too. With the paper's
// own (GPT, 16 bits, dropout, attention's scores in memory) the sum is its s b h (34 + 5 a s / h).
#pragma once

#include <cstdint>

#include "planner/layout.h"
#include "planner/transformer.h"

namespace ringworld {

struct ActivationOptions {
  // Attention keeps a number for each row of scores instead of the scores (Dao et al.,
  // FlashAttention, 2022).
  bool fused_attention = true;
  // Masks of a byte for each element, and the dropped probabilities beside the others.
  bool dropout = false;
};

// Bytes of one token in one layer, on one GPU.
struct LayerActivations {
  std::int64_t whole = 0;   // what tensor ranks all have, or share out with sequence parallelism
  std::int64_t split = 0;   // this rank's part of what tensor parallelism splits
  std::int64_t scores = 0;  // this rank's heads' scores: gone with selective recomputation
  std::int64_t input = 0;   // of `whole`: the layer's input, all that full recomputation keeps
};

// `layer` counts from 0. The layout is one that refusal() lets pass.
LayerActivations layer_activations(const Transformer& model, const Layout& layout,
                                   const ActivationOptions& options, std::int64_t layer);

// Tokens of a micro-batch on one GPU: context parallelism divides them.
std::int64_t tokens_at_once(const Layout& layout);

// Bytes of one micro-batch and layer that wait for backward, recomputation considered.
std::int64_t kept_bytes(const LayerActivations& layer, const Layout& layout);
// And without recomputation: what backward has while it runs.
std::int64_t whole_bytes(const LayerActivations& layer, const Layout& layout);

}  // namespace ringworld
