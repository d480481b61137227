#include "runtime/cpu/workspace.h"

#include "runtime/cpu/checks.h"
#include "runtime/cpu/narrow_matmul.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/types.h"

namespace ringworld {
namespace {

// qkv (B, T, ...): threads share B * heads heads.
Tensor attention_parts(Backend& backend, const Tensor& qkv, int heads, std::int64_t per_part) {
  const std::int64_t parts = count_parts(backend.threads(), qkv.shape()[0] * heads, 1);
  return backend.empty(wide_dtype(qkv.dtype()), Shape{parts, per_part}, Category::workspace);
}

// Threads share the rows of x (..., C).
std::int64_t norm_parts(Backend& backend, const Tensor& x) {
  return count_parts(backend.threads(), x.shape().rows(), rows_per_part(width_of(x)));
}

}  // namespace

Tensor wide_like(Backend& backend, const Tensor& x) {
  const DType wide = wide_dtype(x.dtype());
  return x.dtype() == wide ? x : backend.empty(wide, x.shape(), Category::workspace);
}

std::int64_t matmul_grain(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t products_per_part = 1 << 18;
  constexpr std::int64_t border = 16;  // parts begin at multiples: whole vectors, whole cache lines
  const std::int64_t shorter = std::max<std::int64_t>(1, std::min(m, n) * k);
  return (products_per_part / shorter / border + 1) * border;
}

Tensor matmul_workspace(Backend& backend, const Tensor& out, const Tensor& a, const Tensor& b,
                        const MatmulOptions& options) {
  if (a.dtype() == wide_dtype(a.dtype())) {
    return {};
  }
  const std::int64_t m = options.transpose_a ? width_of(a) : a.shape().rows();
  const std::int64_t k = options.transpose_a ? a.shape().rows() : width_of(a);
  const std::int64_t n = options.transpose_b ? b.shape().rows() : width_of(b);
  const std::int64_t parts = count_parts(backend.threads(), std::max(m, n), matmul_grain(m, n, k));
  const bool narrow_out = out.dtype() == a.dtype();
  return backend.empty(DType::f32,
                       Shape{parts, NarrowTile::of(m, n, k).workspace_elements(narrow_out)},
                       Category::workspace);
}

Tensor layer_norm_backward_workspace(Backend& backend, const Tensor& x) {
  return backend.empty(wide_dtype(x.dtype()), Shape{norm_parts(backend, x), 2, width_of(x)},
                       Category::workspace);
}

Tensor rms_norm_backward_workspace(Backend& backend, const Tensor& x) {
  return backend.empty(wide_dtype(x.dtype()), Shape{norm_parts(backend, x), width_of(x)},
                       Category::workspace);
}

std::int64_t rotary_grain(const Tensor& x, int heads, std::int64_t head_size) {
  return rows_per_part(x.shape()[0] * heads * head_size);
}

Tensor rotary_workspace(Backend& backend, const Tensor& x, int heads, std::int64_t head_size) {
  const std::int64_t parts =
      count_parts(backend.threads(), x.shape()[1], rotary_grain(x, heads, head_size));
  return backend.empty(wide_dtype(x.dtype()), Shape{parts, 2, head_size / 2}, Category::workspace);
}

AttentionForwardWorkspace attention_forward_workspace(Backend& backend, const Tensor& y,
                                                      const Tensor& qkv, int heads) {
  const std::int64_t length = qkv.shape()[1];
  return {.qkv = wide_like(backend, qkv),
          .y = wide_like(backend, y),
          .parts = attention_parts(backend, qkv, heads, attention_tile(length) * length)};
}

AttentionBackwardWorkspace attention_backward_workspace(Backend& backend, const Tensor& dqkv,
                                                        const Tensor& dy, const Tensor& y,
                                                        const Tensor& qkv, int kv_heads) {
  const std::int64_t length = qkv.shape()[1];
  const std::int64_t tile = attention_tile(length);
  return {.qkv = wide_like(backend, qkv),
          .y = wide_like(backend, y),
          .dy = wide_like(backend, dy),
          .dqkv = wide_like(backend, dqkv),
          .parts = attention_parts(backend, qkv, kv_heads, 2 * tile * length + tile)};
}

}  // namespace ringworld
