// What the CPU's verbs take from the device beside their tensors, while they run.
//
// The CPU backend computes in these, and the meta backend allocates the very same, so that a dry
// run's ledger is a real run's, to the byte. What depends on the number of threads takes theirs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/backend.h"

namespace ringworld {

// x itself when it is f32 or f64, else f32 of its shape, with undefined content.
Tensor wide_like(Backend& backend, const Tensor& x);

// How many rows or columns of a product (m, n), whichever are more, are worth a thread.
std::int64_t matmul_grain(std::int64_t m, std::int64_t n, std::int64_t k);
// (parts, elements of a tile) f32, for products of 16-bit formats (narrow_matmul.h); undefined for
// the others.
Tensor matmul_workspace(Backend& backend, const Tensor& out, const Tensor& a, const Tensor& b,
                        const MatmulOptions& options);

// (parts, 2, C): what each thread's rows of x (..., C) give to dweight and to dbias, f32/f64.
Tensor layer_norm_backward_workspace(Backend& backend, const Tensor& x);
// (parts, C): what each thread's rows of x (..., C) give to dweight, f32/f64.
Tensor rms_norm_backward_workspace(Backend& backend, const Tensor& x);

// How many positions of x (B, T, ...) are worth a thread of `rotary`.
std::int64_t rotary_grain(const Tensor& x, int heads, std::int64_t head_size);
// (parts, 2, D/2) f32/f64: cosines and sines of each thread's position.
Tensor rotary_workspace(Backend& backend, const Tensor& x, int heads, std::int64_t head_size);

// Scores are made for at most so many rows of a sequence of `length` at a time.
inline std::int64_t attention_tile(std::int64_t length) {
  return std::min<std::int64_t>(128, length);
}

// `parts` has a row for each thread that there is work for: they share the query heads in forward,
// and in backward those of keys and values, whose gradients all queries of a group add to.
struct AttentionForwardWorkspace {
  Tensor qkv;  // wide_like
  Tensor y;
  Tensor parts;  // (parts, tile * T): scores
};
AttentionForwardWorkspace attention_forward_workspace(Backend& backend, const Tensor& y,
                                                      const Tensor& qkv, int heads);

struct AttentionBackwardWorkspace {
  Tensor qkv;  // wide_like
  Tensor y;
  Tensor dy;
  Tensor dqkv;
  Tensor parts;  // (parts, 2 * tile * T + tile): scores, their gradient, a sum for each row
};
AttentionBackwardWorkspace attention_backward_workspace(Backend& backend, const Tensor& dqkv,
                                                        const Tensor& dy, const Tensor& y,
                                                        const Tensor& qkv, int kv_heads);

}  // namespace ringworld
