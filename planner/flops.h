// Floating-point operations of training, by the conventions in which throughput is published. They
// differ by tens of percent, so every number says which one it is.
//
// Model FLOPs are what the mathematics needs; hardware FLOPs also count what recomputation repeats.
// MFU and HFU are those over what the device could do in the time (Chowdhery et al., PaLM, 2022,
// appendix B).
#pragma once

#include <cstdint>
#include <string_view>

#include "planner/layout.h"
#include "planner/transformer.h"

namespace ringworld {

enum class FlopConvention : std::uint8_t {
  matmul,      // every matrix product of the layers and the head; attention over all positions
  causal,      // the same; attention only over the positions that a token may see
  parameters,  // 6 N per token (Kaplan et al., 2020), N without what a token does not pass
  palm,        // 6 N + 12 L (a d) s per token, N with embeddings (Chowdhery et al., 2022)
  megatron,    // 72 B s l h^2 (1 + s/6h + V/12lh) (Korthikanti et al., 2022, appendix A)
  megatron_selective,  // 72 B s l h^2 (1 + s/3h + V/12lh): the same, attention recomputed
  megatron_full,  // 96 B s l h^2 (1 + s/6h + V/16lh), full recomputation (Narayanan et al., Eq. 3)
};
inline constexpr FlopConvention all_flop_conventions[] = {
    FlopConvention::matmul,       FlopConvention::causal,   FlopConvention::parameters,
    FlopConvention::palm,         FlopConvention::megatron, FlopConvention::megatron_selective,
    FlopConvention::megatron_full};
std::string_view name_of(FlopConvention convention);
std::string_view describe(FlopConvention convention);

// Of one token, forward and backward, at this sequence length. The parts of `matmul`.
struct TokenFlops {
  double weights = 0;    // 6 for each element of the layers' weights that a token meets
  double attention = 0;  // scores and weighted values, over all positions; causal: half of it
  double head = 0;
  double norms = 0;  // 6 for each norm weight and bias: counted by 6 N, part of no matrix product

  double model(bool causal) const { return weights + head + attention * (causal ? 0.5 : 1); }
};
TokenFlops token_flops(const Transformer& model, std::int64_t sequence_length);

// Of one token, forward and backward. The last two count recomputation; no other does.
double model_flops_per_token(const Transformer& model, std::int64_t sequence_length,
                             FlopConvention convention);

// Model FLOPs and what recomputation adds: attention's scores and values (selective) or the whole
// forward of the layers (full).
double hardware_flops_per_token(const Transformer& model, std::int64_t sequence_length,
                                Recompute recompute, bool causal);

// Elements of one layer's weight matrices that a token meets: active and shared experts, no biases.
double active_matrix_elements(const Transformer& model, std::int64_t layer);

}  // namespace ringworld
