#include "runtime/cpu/workspace.h"

#include "runtime/cpu/checks.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/types.h"

namespace ringworld {
namespace {

// qkv (B, T, 3C): threads share its B * heads heads.
Tensor attention_parts(Backend& backend, const Tensor& qkv, int heads, std::int64_t per_part) {
  const std::int64_t parts = count_parts(backend.threads(), qkv.shape()[0] * heads, 1);
  return backend.empty(wide_dtype(qkv.dtype()), Shape{parts, per_part}, Category::workspace);
}

}  // namespace

Tensor wide_like(Backend& backend, const Tensor& x) {
  const DType wide = wide_dtype(x.dtype());
  return x.dtype() == wide ? x : backend.empty(wide, x.shape(), Category::workspace);
}

MatmulWorkspace matmul_workspace(Backend& backend, const Tensor& out, const Tensor& a,
                                 const Tensor& b) {
  return {.a = wide_like(backend, a), .b = wide_like(backend, b), .out = wide_like(backend, out)};
}

Tensor layer_norm_backward_workspace(Backend& backend, const Tensor& x) {
  const std::int64_t width = width_of(x);
  const std::int64_t parts = count_parts(backend.threads(), x.shape().rows(), rows_per_part(width));
  return backend.empty(wide_dtype(x.dtype()), Shape{parts, 2, width}, Category::workspace);
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
                                                        const Tensor& qkv, int heads) {
  const std::int64_t length = qkv.shape()[1];
  const std::int64_t tile = attention_tile(length);
  return {.qkv = wide_like(backend, qkv),
          .y = wide_like(backend, y),
          .dy = wide_like(backend, dy),
          .dqkv = wide_like(backend, dqkv),
          .parts = attention_parts(backend, qkv, heads, 2 * tile * length + tile)};
}

}  // namespace ringworld
