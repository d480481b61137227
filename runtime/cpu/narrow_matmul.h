// Matrix products of the 16-bit formats: OpenBLAS multiplies in f32, so operands are widened on
// the way, tile by tile. A tile is made right before it is used, in memory that stays in the
// cache; whole operands widened beforehand would go through main memory twice, and need workspace
// twice as large as themselves.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/tensor.h"

namespace ringworld {

// out (m, n) = op(a) (m, k) op(b) (k, n), or += ; a and b of one 16-bit format, out of the same or
// in f32.
struct NarrowProduct {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  Tensor out, a, b;
};

// The largest tile of a product, and the f32 workspace that one thread needs for it.
struct NarrowTile {
  std::int64_t m, n, k;

  static NarrowTile of(std::int64_t m, std::int64_t n, std::int64_t k) {
    constexpr std::int64_t side = 512;
    constexpr std::int64_t depth = 768;
    // Equal depths, so that the last one is not a sliver; where they are small, a wider tile, so
    // that a is not widened more often than need be.
    const std::int64_t depths = std::max<std::int64_t>(1, (k + depth - 1) / depth);
    const std::int64_t tile_k = (k + depths - 1) / depths;
    const std::int64_t fitting = side * depth / std::max<std::int64_t>(1, tile_k) / 16 * 16;
    return {std::min(m, side), std::min(n, std::clamp(fitting, side, 4 * side)), tile_k};
  }
  // Of a, b, and, unless out is f32 itself, out.
  std::int64_t workspace_elements(bool narrow_out) const {
    return m * k + k * n + (narrow_out ? m * n : 0);
  }
};

// Rows [begin, end) of out where it is at least as high as wide, else these columns, on the
// calling thread. `workspace` has the elements that the product's tile asks for.
void multiply_narrow(const NarrowProduct& product, std::int64_t begin, std::int64_t end,
                     float* workspace);

}  // namespace ringworld
