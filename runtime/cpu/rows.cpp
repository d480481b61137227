#include "runtime/cpu/rows.h"

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
template <typename T>
void add_rows(T* out, const T* x, std::int64_t width, std::span<const std::int64_t> rows,
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
    T* const to = out + first;
    for_each_vector(d, columns, [=, &sums](std::int64_t c, std::int64_t count) HWY_ATTR {
      store(hn::Add(load(d, to + c, count), load(d, sums + c, count)), d, to + c, count);
    });
  }
}

}  // namespace

const ByFloatingType<RowKernels>* row_table() {
  static constexpr ByFloatingType<RowKernels> table{
      {add_rows<double>}, {add_rows<float>}, {add_rows<bf16>}, {add_rows<f16>}};
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

}  // namespace ringworld
#endif
