#include "runtime/cpu/narrow_matmul.h"

#include "runtime/cpu/blas.h"
#include "runtime/cpu/cast.h"
#include "runtime/raw.h"

namespace ringworld {
namespace {

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Part of a matrix in a 16-bit format, as it lies in memory: these rows, these columns.
struct Block {
  const Tensor& matrix;
  Range rows, columns;

  std::byte* row(std::int64_t r) const {
    return raw_bytes(matrix) + ((rows.begin + r) * matrix.shape()[-1] + columns.begin) * 2;
  }
};

// wide (rows, columns) = block
void widen(float* wide, const Block& block) {
  const CastKernel kernel = cast_kernel(DType::f32, block.matrix.dtype());
  for (std::int64_t r = 0; r < block.rows.size(); ++r) {
    kernel(wide + r * block.columns.size(), block.row(r), block.columns.size());
  }
}

// block = wide (rows, columns)
void round(const Block& block, const float* wide) {
  const CastKernel kernel = cast_kernel(block.matrix.dtype(), DType::f32);
  for (std::int64_t r = 0; r < block.rows.size(); ++r) {
    kernel(block.row(r), wide + r * block.columns.size(), block.columns.size());
  }
}

// body(range) for [begin, end) in steps; once with an empty range if there is nothing, when
// `once`.
template <typename Body>
void for_each_tile(Range range, std::int64_t step, bool once, const Body& body) {
  std::int64_t begin = range.begin;
  do {
    const std::int64_t end = std::min(begin + step, range.end);
    if (end > begin || once) {
      body(Range{begin, end});
    }
    begin = end;
  } while (begin < range.end);
}

// An operand's tile in f32, which is made anew only when another one is asked for.
class WideTile {
 public:
  explicit WideTile(float* memory) : memory_(memory) {}

  // What gemm takes.
  MatrixView<float> hold(const Block& block, bool transposed) {
    if (block.rows != rows_ || block.columns != columns_) {
      widen(memory_, block);
      rows_ = block.rows;
      columns_ = block.columns;
    }
    return {memory_, columns_.size(), transposed};
  }

 private:
  float* memory_;
  Range rows_{-1, -1};
  Range columns_{-1, -1};
};

// The tile of out over `rows` and `columns`, whose sum over k goes through all depths.
void multiply_tile(const NarrowProduct& p, std::int64_t tile_k, Range rows, Range columns,
                   WideTile& wide_a, WideTile& wide_b, float* wide_out) {
  const bool narrow_out = p.out.dtype() != DType::f32;
  const Block out{p.out, rows, columns};
  float* const sums = narrow_out ? wide_out : raw<float>(p.out) + rows.begin * p.n + columns.begin;
  const std::int64_t stride = narrow_out ? columns.size() : p.n;
  if (narrow_out && p.accumulate) {
    widen(sums, out);
  }
  float beta = p.accumulate ? 1 : 0;
  for_each_tile({0, p.k}, tile_k, /*once=*/true, [&](Range depth) {
    const Block a{p.a, p.transpose_a ? depth : rows, p.transpose_a ? rows : depth};
    const Block b{p.b, p.transpose_b ? columns : depth, p.transpose_b ? depth : columns};
    gemm<float>(rows.size(), columns.size(), depth.size(), 1, wide_a.hold(a, p.transpose_a),
                wide_b.hold(b, p.transpose_b), beta, sums, stride);
    beta = 1;
  });
  if (narrow_out) {
    round(out, sums);
  }
}

}  // namespace

void multiply_narrow(const NarrowProduct& p, std::int64_t begin, std::int64_t end,
                     float* workspace) {
  const NarrowTile tile = NarrowTile::of(p.m, p.n, p.k);
  WideTile wide_a(workspace);
  WideTile wide_b(workspace + tile.m * tile.k);
  float* const wide_out = workspace + tile.m * tile.k + tile.k * tile.n;
  const bool by_rows = p.m >= p.n;
  // Along the longer side in the inner loop, where the other operand's tile stays as it is.
  for_each_tile(
      {0, by_rows ? p.n : p.m}, by_rows ? tile.n : tile.m, /*once=*/false, [&](Range outer) {
        for_each_tile({begin, end}, by_rows ? tile.m : tile.n, /*once=*/false, [&](Range inner) {
          multiply_tile(p, tile.k, by_rows ? inner : outer, by_rows ? outer : inner, wide_a, wide_b,
                        wide_out);
        });
      });
}

}  // namespace ringworld
