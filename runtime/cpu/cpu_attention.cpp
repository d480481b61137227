// Causal multi-head attention: matrix products on tiles of each head's scores, and a softmax
// between them.
//
// A head's queries, keys and values are columns of qkv (B, T, (heads + 2 kv_heads) D), D wide; the
// products take them in place, with a whole row of qkv from one to the next. Scores are made for up
// to `attention_tile` rows at a time, and only for the columns that the causal mask leaves to one
// of them: memory is T per thread and row of the tile, and about half of the work is never done.
#include <cmath>

#include <fmt/format.h>

#include "runtime/cpu/attention.h"
#include "runtime/cpu/blas.h"
#include "runtime/cpu/checks.h"
#include "runtime/cpu/cpu_backend.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/types.h"
#include "runtime/cpu/workspace.h"
#include "runtime/raw.h"

namespace ringworld {
namespace {

struct Geometry {
  std::int64_t batch;
  std::int64_t length;  // T
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t depth;  // D

  std::int64_t group() const { return heads / kv_heads; }  // queries of one head of keys and values
  std::int64_t width() const { return heads * depth; }     // of y
  std::int64_t stride() const { return (heads + 2 * kv_heads) * depth; }  // the width of qkv
  std::int64_t tile() const { return attention_tile(length); }
  ScoreTile tile_at(std::int64_t first_row) const {
    const std::int64_t rows = std::min(tile(), length - first_row);
    return {first_row, rows, first_row + rows};
  }
};

// One query head of one sequence: `index` counts batch * heads. The first element of each of its
// matrices within its tensor.
struct Head {
  std::int64_t q, k, v;      // in qkv
  std::int64_t y;            // in y
  std::int64_t log_sum_exp;  // in log_sum_exp
  bool first_of_group;       // of those that share k and v

  Head(const Geometry& g, std::int64_t index) {
    const std::int64_t first_token = index / g.heads * g.length;
    const std::int64_t head = index % g.heads;
    q = first_token * g.stride() + head * g.depth;
    k = first_token * g.stride() + (g.heads + head / g.group()) * g.depth;
    v = k + g.kv_heads * g.depth;
    y = first_token * g.width() + head * g.depth;
    log_sum_exp = index * g.length;
    first_of_group = head % g.group() == 0;
  }
};

Geometry geometry_of(std::string_view verb, const Tensor& qkv, const Tensor& y,
                     const Tensor& log_sum_exp, int heads, int kv_heads) {
  check_floating(verb, {&qkv, &y});
  const bool fits = qkv.shape().axes() == 3 && y.shape().axes() == 3 && heads >= 1 &&
                    kv_heads >= 1 && heads % kv_heads == 0 && y.shape()[2] % heads == 0 &&
                    qkv.shape()[2] == y.shape()[2] / heads * (heads + 2 * kv_heads) &&
                    qkv.shape()[0] == y.shape()[0] && qkv.shape()[1] == y.shape()[1] &&
                    log_sum_exp.defined() && log_sum_exp.dtype() == wide_dtype(qkv.dtype()) &&
                    log_sum_exp.elements() == qkv.shape()[0] * heads * qkv.shape()[1];
  check(fits, verb,
        fmt::format("qkv (B, T, (heads + 2 kv_heads) D), y (B, T, heads D), log_sum_exp "
                    "(B, heads, T) f32/f64 for {} heads in groups that share {} of keys and values",
                    heads, kv_heads),
        {&qkv, &y, &log_sum_exp});
  return {y.shape()[0], y.shape()[1], heads, kv_heads, y.shape()[2] / heads};
}

template <typename T>
T score_scale(const Geometry& g) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(g.depth)));
}

template <typename T>
void forward_head(const Geometry& g, const Head& head, T* y, T* log_sum_exp, const T* qkv,
                  T* scores) {
  const std::int64_t stride = g.stride();
  const T* const q = qkv + head.q;
  const T* const k = qkv + head.k;
  const T* const v = qkv + head.v;
  T* const out = y + head.y;
  for (std::int64_t row = 0; row < g.length; row += g.tile()) {
    const ScoreTile tile = g.tile_at(row);
    gemm<T>(tile.rows, tile.columns, g.depth, score_scale<T>(g), {q + row * stride, stride},
            {k, stride, true}, T{0}, scores, tile.columns);
    attention_kernels<T>().softmax(scores, log_sum_exp + head.log_sum_exp + row, tile);
    gemm<T>(tile.rows, g.depth, tile.columns, T{1}, {scores, tile.columns}, {v, stride}, T{0},
            out + row * g.width(), g.width());
  }
}

// With P the probabilities and S the scores: dV = P^T dY, dP = dY V^T, dS = P (dP - delta),
// dQ = scale dS K, dK = scale dS^T Q. dK and dV are sums over the queries of a group.
template <typename T>
void backward_head(const Geometry& g, const Head& head, T* dqkv, const T* dy, const T* y,
                   const T* log_sum_exp, const T* qkv, T* scores, T* dp, T* delta) {
  const std::int64_t stride = g.stride();
  const T scale = score_scale<T>(g);
  const T* const q = qkv + head.q;
  const T* const k = qkv + head.k;
  const T* const v = qkv + head.v;
  T* const dq = dqkv + head.q;
  T* const dk = dqkv + head.k;
  T* const dv = dqkv + head.v;
  const T* const dout = dy + head.y;
  const T* const out = y + head.y;
  // From the last tile to the first: the last one sees every column, so the group's first query
  // sets dK and dV there, and everything after adds to them.
  for (std::int64_t row = (g.length - 1) / g.tile() * g.tile(); row >= 0; row -= g.tile()) {
    const ScoreTile tile = g.tile_at(row);
    const T beta = head.first_of_group && tile.columns == g.length ? T{0} : T{1};
    const T* const tile_dout = dout + row * g.width();
    gemm<T>(tile.rows, tile.columns, g.depth, scale, {q + row * stride, stride}, {k, stride, true},
            T{0}, scores, tile.columns);
    gemm<T>(tile.rows, tile.columns, g.depth, T{1}, {tile_dout, g.width()}, {v, stride, true}, T{0},
            dp, tile.columns);
    attention_kernels<T>().row_dots(delta, tile_dout, out + row * g.width(), tile.rows, g.depth,
                                    g.width());
    attention_kernels<T>().softmax_backward(scores, dp, log_sum_exp + head.log_sum_exp + row, delta,
                                            tile);
    gemm<T>(tile.columns, g.depth, tile.rows, T{1}, {scores, tile.columns, true},
            {tile_dout, g.width()}, beta, dv, stride);
    gemm<T>(tile.columns, g.depth, tile.rows, scale, {dp, tile.columns, true},
            {q + row * stride, stride}, beta, dk, stride);
    gemm<T>(tile.rows, g.depth, tile.columns, scale, {dp, tile.columns}, {k, stride}, T{0},
            dq + row * stride, stride);
  }
}

}  // namespace

void CpuBackend::attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                                   int heads, int kv_heads) {
  const Geometry g = geometry_of("attention_forward", qkv, y, log_sum_exp, heads, kv_heads);
  if (qkv.elements() == 0) {
    return;
  }
  count_attention_forward(y);
  const AttentionForwardWorkspace wide = attention_forward_workspace(*this, y, qkv, heads);
  cast_unless_same(wide.qkv, qkv);
  const std::int64_t per_part = wide.parts.shape()[1];
  const auto run = [&]<typename T>() {
    for_each_part(threads_, g.batch * g.heads, 1,
                  [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
                    for (std::int64_t index = begin; index < end; ++index) {
                      forward_head(g, Head(g, index), raw<T>(wide.y), raw<T>(log_sum_exp),
                                   raw<T>(wide.qkv), raw<T>(wide.parts) + part * per_part);
                    }
                  });
  };
  qkv.dtype() == DType::f64 ? run.operator()<double>() : run.operator()<float>();
  cast_unless_same(y, wide.y);
}

void CpuBackend::attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                                    const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                                    int kv_heads) {
  const Geometry g = geometry_of("attention_backward", qkv, y, log_sum_exp, heads, kv_heads);
  geometry_of("attention_backward", dqkv, dy, log_sum_exp, heads, kv_heads);
  check(dqkv.dtype() == qkv.dtype() && dqkv.shape() == qkv.shape(), "attention_backward",
        "dqkv as qkv", {&dqkv, &qkv});
  if (qkv.elements() == 0) {
    return;
  }
  count_attention_backward(dy);
  const AttentionBackwardWorkspace wide =
      attention_backward_workspace(*this, dqkv, dy, y, qkv, kv_heads);
  cast_unless_same(wide.qkv, qkv);
  cast_unless_same(wide.y, y);
  cast_unless_same(wide.dy, dy);
  const std::int64_t tile = g.tile() * g.length;
  const std::int64_t per_part = wide.parts.shape()[1];
  const auto run = [&]<typename T>() {
    // A group's queries stay together, on one thread and in their order.
    for_each_part(threads_, g.batch * g.kv_heads, 1,
                  [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
                    T* const scores = raw<T>(wide.parts) + part * per_part;
                    for (std::int64_t index = begin * g.group(); index < end * g.group(); ++index) {
                      backward_head(g, Head(g, index), raw<T>(wide.dqkv), raw<T>(wide.dy),
                                    raw<T>(wide.y), raw<T>(log_sum_exp), raw<T>(wide.qkv), scores,
                                    scores + tile, scores + 2 * tile);
                    }
                  });
  };
  qkv.dtype() == DType::f64 ? run.operator()<double>() : run.operator()<float>();
  cast_unless_same(dqkv, wide.dqkv);
}

}  // namespace ringworld
