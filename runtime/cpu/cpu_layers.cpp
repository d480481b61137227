// Embedding, layer norm, GELU and cross-entropy.
#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "runtime/cpu/checks.h"
#include "runtime/cpu/cpu_backend.h"
#include "runtime/cpu/cross_entropy.h"
#include "runtime/cpu/dropout.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/layer_norm.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/rows.h"
#include "runtime/cpu/workspace.h"
#include "runtime/raw.h"

namespace ringworld {
namespace {

// The tokens of a (B, T) or the targets of a (rows) tensor, which must be below `limit`.
std::span<const std::int32_t> checked_indices(std::string_view verb, const Tensor& indices,
                                              std::int64_t lowest, std::int64_t limit) {
  const std::span<const std::int32_t> values(raw<const std::int32_t>(indices),
                                             static_cast<std::size_t>(indices.elements()));
  for (const std::int32_t value : values) {
    check(value >= lowest && value < limit, verb,
          fmt::format("indices in [0, {}), but there is {}", limit, value), {&indices});
  }
  return values;
}

}  // namespace

// --- Embedding ----------------------------------------------------------------------------------

void CpuBackend::embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& table,
                                   const Tensor& positions) {
  check_floating("embedding_forward", {&y, &table});
  const std::int64_t width = width_of(y);
  const std::int64_t length = width_of(tokens);
  const bool fits =
      tokens.defined() && tokens.dtype() == DType::i32 && y.shape().rows() == tokens.elements() &&
      table.shape().axes() == 2 && width_of(table) == width &&
      (!positions.defined() || (positions.dtype() == y.dtype() && width_of(positions) == width &&
                                positions.shape().rows() >= length));
  check(fits, "embedding_forward",
        "y (B, T, C), tokens (B, T) i32, table (V, C), positions (>= T, C)",
        {&y, &tokens, &table, &positions});
  const auto indices = checked_indices("embedding_forward", tokens, 0, table.shape()[0]);
  with_floating_type(y.dtype(), [&]<typename T>() {
    const auto& kernels = elementwise_kernels().of<T>();
    for_each_range(threads_, y.shape().rows(), rows_per_part(width),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const T* const entry =
                           raw<T>(table) + indices[static_cast<std::size_t>(row)] * width;
                       T* const to = raw<T>(y) + row * width;
                       if (positions.defined()) {
                         kernels.add(to, entry, raw<T>(positions) + row % length * width, width);
                       } else {
                         std::copy_n(entry, width, to);
                       }
                     }
                   });
  });
}

// Rows of dy that go to the same entry are added up first, in their order, so that an entry is
// rounded once however often its token occurs. Threads share the columns, never an entry.
void CpuBackend::embedding_backward(const Tensor& dtable, const Tensor& dpositions,
                                    const Tensor& dy, const Tensor& tokens) {
  check_floating("embedding_backward", {&dy});
  const std::int64_t width = width_of(dy);
  const std::int64_t length = width_of(tokens);
  const auto is_gradient = [&](const Tensor& x, std::int64_t least_rows) {
    return !x.defined() || (is_maybe_wide(x, dy.dtype()) && x.shape().axes() == 2 &&
                            width_of(x) == width && x.shape()[0] >= least_rows);
  };
  check(
      tokens.defined() && tokens.dtype() == DType::i32 && dy.shape().rows() == tokens.elements() &&
          is_gradient(dtable, 0) && is_gradient(dpositions, length),
      "embedding_backward", "dtable (V, C), dpositions (>= T, C), dy (B, T, C), tokens (B, T) i32",
      {&dtable, &dpositions, &dy, &tokens});
  const std::int64_t rows = tokens.elements();
  const auto add_group = [&](const Tensor& out, std::int64_t entry,
                             std::span<const std::int64_t> group) {
    const std::int64_t columns_per_part =
        (rows_per_part(static_cast<std::int64_t>(group.size())) + 63) / 64 * 64;
    for_each_range(threads_, width, columns_per_part, [&](std::int64_t begin, std::int64_t end) {
      add_rows(out, entry, dy, group, begin, end);
    });
  };
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  if (dtable.defined()) {
    const auto indices = checked_indices("embedding_backward", tokens, 0, dtable.shape()[0]);
    const auto token_of = [&](std::int64_t row) { return indices[static_cast<std::size_t>(row)]; };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return token_of(a) < token_of(b); });
    for (auto first = order.begin(); first != order.end();) {
      const std::int32_t token = token_of(*first);
      const auto last = std::find_if(first, order.end(),
                                     [&](std::int64_t row) { return token_of(row) != token; });
      add_group(dtable, token, std::span<const std::int64_t>(first, last));
      first = last;
    }
  }
  if (dpositions.defined() && rows > 0) {
    const std::int64_t batch = rows / length;
    order.resize(static_cast<std::size_t>(batch));
    for (std::int64_t position = 0; position < length; ++position) {
      for (std::int64_t b = 0; b < batch; ++b) {
        order[static_cast<std::size_t>(b)] = b * length + position;
      }
      add_group(dpositions, position, order);
    }
  }
}

// --- Layer norm ---------------------------------------------------------------------------------

void CpuBackend::layer_norm_forward(const Tensor& y, const Tensor& mean,
                                    const Tensor& inverse_deviation, const Tensor& x,
                                    const Tensor& weight, const Tensor& bias, double epsilon) {
  check_floating("layer_norm_forward", {&y, &x, &weight, &bias});
  check_floating("layer_norm_forward", {&mean, &inverse_deviation});
  const std::int64_t rows = x.shape().rows();
  const std::int64_t width = width_of(x);
  check(
      y.elements() == x.elements() && width_of(y) == width && weight.elements() == width &&
          bias.elements() == width && mean.dtype() == wide_dtype(x.dtype()) &&
          mean.elements() == rows && inverse_deviation.elements() == rows,
      "layer_norm_forward",
      "y (..., C), mean (rows) f32/f64, inverse_deviation (rows) f32/f64, x (..., C), weight (C), "
      "bias (C)",
      {&y, &mean, &inverse_deviation, &x, &weight, &bias});
  with_floating_type(x.dtype(), [&]<typename T>() {
    using Sum = ComputeType<T>;
    const LayerNormForward<T> tensors{
        .y = raw<T>(y),
        .mean = raw<Sum>(mean),
        .inverse_deviation = raw<Sum>(inverse_deviation),
        .x = raw<T>(x),
        .weight = raw<T>(weight),
        .bias = raw<T>(bias),
        .width = width,
        .epsilon = epsilon,
    };
    const auto& kernels = layer_norm_kernels().of<T>();
    for_each_range(threads_, rows, rows_per_part(width), [&](std::int64_t begin, std::int64_t end) {
      kernels.forward(tensors, begin, end);
    });
  });
}

void CpuBackend::layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                     const Tensor& dy, const Tensor& x, const Tensor& weight,
                                     const Tensor& mean, const Tensor& inverse_deviation) {
  check_floating("layer_norm_backward", {&dx, &dy, &x, &weight});
  check_floating("layer_norm_backward", {&dweight, &dbias});
  check_floating("layer_norm_backward", {&mean, &inverse_deviation});
  const std::int64_t rows = x.shape().rows();
  const std::int64_t width = width_of(x);
  const DType wide = wide_dtype(x.dtype());
  check(is_maybe_wide(dweight, x.dtype()) && dx.elements() == x.elements() &&
            width_of(dx) == width && dy.elements() == x.elements() && width_of(dy) == width &&
            dweight.elements() == width && dbias.elements() == width &&
            weight.elements() == width && mean.dtype() == wide && mean.elements() == rows &&
            inverse_deviation.elements() == rows,
        "layer_norm_backward",
        "dx (..., C), dweight (C), dbias (C), dy (..., C), x (..., C), weight (C), "
        "mean (rows) f32/f64, inverse_deviation (rows) f32/f64",
        {&dx, &dweight, &dbias, &dy, &x, &weight, &mean, &inverse_deviation});
  const Tensor sums = layer_norm_backward_workspace(*this, x);
  const std::int64_t parts = sums.shape()[0];
  with_floating_type(x.dtype(), [&]<typename T>() {
    using Sum = ComputeType<T>;
    const LayerNormBackward<T> tensors{
        .dx = raw<T>(dx),
        .dy = raw<T>(dy),
        .x = raw<T>(x),
        .weight = raw<T>(weight),
        .mean = raw<Sum>(mean),
        .inverse_deviation = raw<Sum>(inverse_deviation),
        .width = width,
    };
    const auto& kernels = layer_norm_kernels().of<T>();
    Sum* const part_sums = raw<Sum>(sums);
    for_each_part(threads_, rows, rows_per_part(width),
                  [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
                    kernels.backward(tensors, part_sums + part * 2 * width, begin, end);
                  });
    const auto add_sums = [&]<typename Out>(Out* to_weight, Out* to_bias) {
      const auto add = layer_norm_kernels().of<Out>().add_sums;
      add(to_weight, part_sums, parts, 2 * width, width);
      add(to_bias, part_sums + width, parts, 2 * width, width);
    };
    if (dweight.dtype() == x.dtype()) {
      add_sums(raw<T>(dweight), raw<T>(dbias));
    } else {
      add_sums(raw<Sum>(dweight), raw<Sum>(dbias));
    }
  });
}

// --- GELU ---------------------------------------------------------------------------------------

void CpuBackend::gelu_forward(const Tensor& y, const Tensor& x) {
  check_elementwise("gelu_forward", {&y, &x});
  with_floating_type(y.dtype(), [&]<typename T>() {
    const auto& kernels = elementwise_kernels().of<T>();
    for_each_range(threads_, y.elements(), elements_per_part,
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels.gelu_forward(raw<T>(y) + begin, raw<T>(x) + begin, end - begin);
                   });
  });
}

void CpuBackend::gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x) {
  check_elementwise("gelu_backward", {&dx, &dy, &x});
  with_floating_type(dx.dtype(), [&]<typename T>() {
    const auto& kernels = elementwise_kernels().of<T>();
    for_each_range(threads_, dx.elements(), elements_per_part,
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels.gelu_backward(raw<T>(dx) + begin, raw<T>(dy) + begin,
                                           raw<T>(x) + begin, end - begin);
                   });
  });
}

// --- Dropout ------------------------------------------------------------------------------------

void CpuBackend::dropout(const Tensor& out, const Tensor& x, const RandomKey& key,
                         std::int64_t first_index, double probability) {
  check_elementwise("dropout", {&out, &x});
  check(probability >= 0 && probability < 1, "dropout",
        fmt::format("a probability in [0, 1) instead of {}", probability), {&out, &x});
  if (probability == 0) {
    if (!out.same_view(x)) {
      copy(out, x);
    }
    return;
  }
  with_floating_type(x.dtype(), [&]<typename T>() {
    const auto& kernels = dropout_kernels().of<T>();
    for_each_range(threads_, x.elements(), elements_per_part,
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels.dropout(raw<T>(out) + begin, raw<T>(x) + begin, key,
                                     static_cast<std::uint64_t>(first_index + begin), end - begin,
                                     probability);
                   });
  });
}

// --- Cross-entropy ------------------------------------------------------------------------------

void CpuBackend::cross_entropy_forward(const Tensor& losses, const Tensor& log_sum_exp,
                                       const Tensor& logits, const Tensor& targets) {
  check_floating("cross_entropy_forward", {&logits});
  check_floating("cross_entropy_forward", {&losses, &log_sum_exp});
  const std::int64_t rows = logits.shape().rows();
  const std::int64_t classes = width_of(logits);
  check(losses.dtype() == wide_dtype(logits.dtype()) && losses.elements() == rows &&
            log_sum_exp.elements() == rows && targets.defined() && targets.dtype() == DType::i32 &&
            targets.elements() == rows,
        "cross_entropy_forward",
        "losses (rows) f32/f64, log_sum_exp (rows) f32/f64, logits (..., V), targets (rows) i32",
        {&losses, &log_sum_exp, &logits, &targets});
  const auto classes_of = checked_indices("cross_entropy_forward", targets,
                                          std::numeric_limits<std::int32_t>::min(), classes);
  with_floating_type(logits.dtype(), [&]<typename T>() {
    using Sum = ComputeType<T>;
    const auto& kernels = cross_entropy_kernels().of<T>();
    for_each_range(
        threads_, rows, rows_per_part(classes), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            const std::int32_t target = classes_of[static_cast<std::size_t>(row)];
            const T* const x = raw<T>(logits) + row * classes;
            const Sum total = target < 0 ? Sum{0} : kernels.log_sum_exp(x, classes);
            raw<Sum>(log_sum_exp)[row] = total;
            raw<Sum>(losses)[row] = target < 0 ? Sum{0} : total - widen_element(x[target]);
          }
        });
  });
}

void CpuBackend::cross_entropy_backward(const Tensor& dlogits, const Tensor& logits,
                                        const Tensor& targets, const Tensor& log_sum_exp,
                                        double factor) {
  check_floating("cross_entropy_backward", {&dlogits, &logits});
  check_floating("cross_entropy_backward", {&log_sum_exp});
  const std::int64_t rows = logits.shape().rows();
  const std::int64_t classes = width_of(logits);
  check(dlogits.elements() == logits.elements() && width_of(dlogits) == classes &&
            targets.defined() && targets.dtype() == DType::i32 && targets.elements() == rows &&
            log_sum_exp.dtype() == wide_dtype(logits.dtype()) && log_sum_exp.elements() == rows,
        "cross_entropy_backward",
        "dlogits (..., V), logits (..., V), targets (rows) i32, log_sum_exp (rows) f32/f64",
        {&dlogits, &logits, &targets, &log_sum_exp});
  const auto classes_of = checked_indices("cross_entropy_backward", targets,
                                          std::numeric_limits<std::int32_t>::min(), classes);
  with_floating_type(logits.dtype(), [&]<typename T>() {
    using Sum = ComputeType<T>;
    const auto& kernels = cross_entropy_kernels().of<T>();
    for_each_range(threads_, rows, rows_per_part(classes),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const std::int32_t target = classes_of[static_cast<std::size_t>(row)];
                       T* const dx = raw<T>(dlogits) + row * classes;
                       if (target < 0) {
                         std::fill_n(dx, classes, T{});
                       } else {
                         kernels.backward(dx, raw<T>(logits) + row * classes, classes, target,
                                          raw<Sum>(log_sum_exp)[row], factor);
                       }
                     }
                   });
  });
}

}  // namespace ringworld
