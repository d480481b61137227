#include "runtime/cpu/rows.h"

#include "runtime/raw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/rows.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// Columns go in blocks whose sums stay in the first-level cache, so that x is read once and in
// order.
template <typename Out, typename T>
void add_rows(Out* out, const T* x, std::int64_t width, std::span<const std::int64_t> rows,
              std::int64_t begin, std::int64_t end) {
  using Sum = ComputeType<T>;
  constexpr std::int64_t block = 1024;
  const VectorsOf<T> d;
  HWY_ALIGN Sum sums[block];
  for (std::int64_t first = begin; first < end; first += block) {
    const std::int64_t columns = std::min(block, end - first);
    std::fill_n(sums, columns, Sum{0});
    for (const std::int64_t row : rows) {
      const T* const from = x + row * width + first;
      for_each_vector(d, columns, [=, &sums](std::int64_t c, std::int64_t count) HWY_ATTR {
        store(hn::Add(load(d, sums + c, count), load(d, from + c, count)), d, sums + c, count);
      });
    }
    Out* const to = out + first;
    for_each_vector(d, columns, [=, &sums](std::int64_t c, std::int64_t count) HWY_ATTR {
      store(hn::Add(load(d, to + c, count), load(d, sums + c, count)), d, to + c, count);
    });
  }
}

template <typename T>
constexpr RowKernels<T> kernels{add_rows<T, T>, add_rows<ComputeType<T>, T>};

}  // namespace

const ByFloatingType<RowKernels>* row_table() {
  static constexpr ByFloatingType<RowKernels> table{kernels<double>, kernels<float>, kernels<bf16>,
                                                    kernels<f16>};
  return &table;
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(row_table);

const ByFloatingType<RowKernels>& row_kernels() {
  return *HWY_DYNAMIC_DISPATCH(row_table)();
}

void add_rows(const Tensor& out, std::int64_t entry, const Tensor& x,
              std::span<const std::int64_t> rows, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = x.shape()[-1];
  with_floating_type(x.dtype(), [&]<typename T>() {
    const auto& kernels = row_kernels().of<T>();
    const auto add = [&]<typename Out>(void (*kernel)(Out*, const T*, std::int64_t,
                                                      std::span<const std::int64_t>, std::int64_t,
                                                      std::int64_t)) {
      kernel(raw<Out>(out) + entry * width, raw<T>(x), width, rows, begin, end);
    };
    out.dtype() == x.dtype() ? add(kernels.add_rows) : add(kernels.add_rows_wide);
  });
}

}  // namespace ringworld
#endif
