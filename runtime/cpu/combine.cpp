#include "runtime/cpu/combine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/combine.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// Integers wrap: they are added as unsigned ones.
template <class D>
HWY_INLINE hn::Vec<D> add(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    return hn::Add(a, b);
  } else {
    const hn::RebindToUnsigned<D> bits;
    return hn::BitCast(d, hn::Add(hn::BitCast(bits, a), hn::BitCast(bits, b)));
  }
}

// `chosen`, the smaller or larger of a and b, unless one of them is NaN: then that one. Which
// operand the processor's own minimum returns then depends on their order and on the processor.
template <class V>
HWY_INLINE V or_nan(V chosen, V a, V b) {
  return hn::IfThenElse(hn::Eq(a, a), hn::IfThenElse(hn::Eq(b, b), chosen, b), a);
}

template <typename T>
void combine(void* untyped_out, const void* untyped_x, std::int64_t n, ReduceOp op) {
  auto* out = static_cast<T*>(untyped_out);
  const auto* x = static_cast<const T*>(untyped_x);
  const VectorsOf<T> d;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
        store(add(d, load(d, out + i, count), load(d, x + i, count)), d, out + i, count);
      });
      return;
    case ReduceOp::min:
      for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
        const auto a = load(d, out + i, count);
        const auto b = load(d, x + i, count);
        store(or_nan(hn::Min(a, b), a, b), d, out + i, count);
      });
      return;
    case ReduceOp::max:
      for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
        const auto a = load(d, out + i, count);
        const auto b = load(d, x + i, count);
        store(or_nan(hn::Max(a, b), a, b), d, out + i, count);
      });
      return;
  }
}

template <typename T>
void divide(void* untyped_x, std::int64_t n, std::int64_t divisor) {
  auto* x = static_cast<T*>(untyped_x);
  if constexpr (std::is_integral_v<T>) {
    for (std::int64_t i = 0; i < n; ++i) {
      // Negated as an unsigned number, the smallest one wraps instead of overflowing.
      x[i] = divisor == -1 ? static_cast<T>(-static_cast<std::uint64_t>(x[i]))
                           : static_cast<T>(x[i] / divisor);
    }
  } else {
    const VectorsOf<T> d;
    const auto by = hn::Set(d, static_cast<ComputeType<T>>(divisor));
    for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      store(hn::Div(load(d, x + i, count), by), d, x + i, count);
    });
  }
}

}  // namespace

CombineKernels find_combine(DType dtype) {
  return with_any_type(dtype, []<typename T>() { return CombineKernels{combine<T>, divide<T>}; });
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(find_combine);

CombineKernels combine_kernels(DType dtype) {
  return HWY_DYNAMIC_DISPATCH(find_combine)(dtype);
}

}  // namespace ringworld
#endif
