// Embedding and cross-entropy: the verbs over a vocabulary, or over a part of one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "runtime/cpu/checks.h"
#include "runtime/cpu/cpu_backend.h"
#include "runtime/cpu/cross_entropy.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/rows.h"
#include "runtime/raw.h"

namespace ringworld {
namespace {

constexpr std::int64_t any_negative = std::numeric_limits<std::int32_t>::min();

// The tokens of a (B, T) or the targets of a (rows) tensor, and which entry of [first, first +
// count) each is.
struct Indices {
  const std::int32_t* values;
  std::int64_t first;
  std::int64_t count;

  std::int32_t operator[](std::int64_t row) const { return values[row]; }
  std::optional<std::int64_t> of(std::int64_t row) const {
    const std::int64_t entry = values[row] - first;
    return values[row] >= 0 && entry >= 0 && entry < count ? std::optional(entry) : std::nullopt;
  }
};

// No index may be below `lowest` nor, where the entries are not a part that begins at `first`, past
// the last of them.
Indices checked_indices(std::string_view verb, const Tensor& indices, std::int64_t lowest,
                        std::int64_t count, std::optional<std::int64_t> first) {
  const Indices result{raw<const std::int32_t>(indices), first.value_or(0), count};
  const std::int64_t limit = first ? std::numeric_limits<std::int64_t>::max() : count;
  for (std::int64_t row = 0; row < indices.elements(); ++row) {
    if (result[row] < lowest || result[row] >= limit) {
      fail_check(verb, fmt::format("indices in [0, {}), but there is {}", limit, result[row]),
                 {&indices});
    }
  }
  return result;
}

}  // namespace

// --- Embedding ----------------------------------------------------------------------------------

void CpuBackend::embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& table,
                                   const Tensor& positions,
                                   std::optional<std::int64_t> first_token) {
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
  const auto entries =
      checked_indices("embedding_forward", tokens, 0, table.shape()[0], first_token);
  with_floating_type(y.dtype(), [&]<typename T>() {
    const auto& kernels = elementwise_kernels().of<T>();
    for_each_range(threads_, y.shape().rows(), rows_per_part(width),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       T* const to = raw<T>(y) + row * width;
                       const std::optional<std::int64_t> entry = entries.of(row);
                       if (entry) {
                         std::copy_n(raw<T>(table) + *entry * width, width, to);
                       } else {
                         std::fill_n(to, width, T{});
                       }
                       if (positions.defined()) {
                         kernels.add(to, to, raw<T>(positions) + row % length * width, width);
                       }
                     }
                   });
  });
}

// Rows of dy that go to the same entry are added up first, in their order, so that an entry is
// rounded once however often its token occurs. Threads share the columns, never an entry.
void CpuBackend::embedding_backward(const Tensor& dtable, const Tensor& dpositions,
                                    const Tensor& dy, const Tensor& tokens,
                                    std::optional<std::int64_t> first_token) {
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
  std::vector<std::int64_t> order;
  if (dtable.defined()) {
    const auto entries =
        checked_indices("embedding_backward", tokens, 0, dtable.shape()[0], first_token);
    for (std::int64_t row = 0; row < rows; ++row) {
      if (entries.of(row)) {
        order.push_back(row);
      }
    }
    const auto entry_of = [&](std::int64_t row) { return *entries.of(row); };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return entry_of(a) < entry_of(b); });
    for (auto first = order.begin(); first != order.end();) {
      const std::int64_t entry = entry_of(*first);
      const auto last = std::find_if(first, order.end(),
                                     [&](std::int64_t row) { return entry_of(row) != entry; });
      add_group(dtable, entry, std::span<const std::int64_t>(first, last));
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

// --- Cross-entropy ------------------------------------------------------------------------------

void CpuBackend::cross_entropy_forward(const Tensor& losses, const Tensor& log_sum_exp,
                                       const Tensor& logits, const Tensor& targets,
                                       std::optional<std::int64_t> first_class) {
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
  const auto entries =
      checked_indices("cross_entropy_forward", targets, any_negative, classes, first_class);
  with_floating_type(logits.dtype(), [&]<typename T>() {
    using Sum = ComputeType<T>;
    const auto& kernels = cross_entropy_kernels().of<T>();
    for_each_range(
        threads_, rows, rows_per_part(classes), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            const T* const x = raw<T>(logits) + row * classes;
            const std::optional<std::int64_t> target = entries.of(row);
            const Sum total = entries[row] < 0 ? Sum{0} : kernels.log_sum_exp(x, classes);
            raw<Sum>(log_sum_exp)[row] = total;
            raw<Sum>(losses)[row] = target ? total - widen_element(x[*target]) : Sum{0};
          }
        });
  });
}

void CpuBackend::cross_entropy_join(const Tensor& losses, const Tensor& log_sum_exp,
                                    const Tensor& parts, std::int64_t part, const Tensor& targets,
                                    std::int64_t first_class, std::int64_t classes) {
  check_floating("cross_entropy_join", {&losses, &log_sum_exp, &parts});
  const std::int64_t rows = losses.elements();
  const std::int64_t count = parts.shape().axes() == 2 ? parts.shape()[0] : 0;
  check(losses.dtype() == wide_dtype(losses.dtype()) && log_sum_exp.elements() == rows &&
            parts.elements() == count * rows && part >= 0 && part < count && targets.defined() &&
            targets.dtype() == DType::i32 && targets.elements() == rows,
        "cross_entropy_join",
        fmt::format("losses (rows) f32/f64, log_sum_exp (rows), parts (n > {}, rows), targets "
                    "(rows) i32",
                    part),
        {&losses, &log_sum_exp, &parts, &targets});
  const auto entries =
      checked_indices("cross_entropy_join", targets, any_negative, classes, first_class);
  const auto run = [&]<typename T>() {
    const T* const of_parts = raw<T>(parts);
    for_each_range(threads_, rows, rows_per_part(count), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T largest = of_parts[row];
        for (std::int64_t n = 1; n < count; ++n) {
          largest = std::max(largest, of_parts[n * rows + row]);
        }
        T sum = 0;
        for (std::int64_t n = 0; n < count; ++n) {
          sum += std::exp(of_parts[n * rows + row] - largest);
        }
        const T total = largest + std::log(sum);
        raw<T>(log_sum_exp)[row] = total;
        if (entries.of(row)) {
          raw<T>(losses)[row] += total - of_parts[part * rows + row];
        }
      }
    });
  };
  losses.dtype() == DType::f64 ? run.operator()<double>() : run.operator()<float>();
}

void CpuBackend::cross_entropy_backward(const Tensor& dlogits, const Tensor& logits,
                                        const Tensor& targets, const Tensor& log_sum_exp,
                                        double factor, std::optional<std::int64_t> first_class) {
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
  const auto entries =
      checked_indices("cross_entropy_backward", targets, any_negative, classes, first_class);
  with_floating_type(logits.dtype(), [&]<typename T>() {
    using Sum = ComputeType<T>;
    const auto& kernels = cross_entropy_kernels().of<T>();
    for_each_range(
        threads_, rows, rows_per_part(classes), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            T* const dx = raw<T>(dlogits) + row * classes;
            if (entries[row] < 0) {
              std::fill_n(dx, classes, T{});
            } else {
              kernels.backward(dx, raw<T>(logits) + row * classes, classes,
                               entries.of(row).value_or(-1), raw<Sum>(log_sum_exp)[row], factor);
            }
          }
        });
  });
}

}  // namespace ringworld
