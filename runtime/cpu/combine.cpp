#include "runtime/cpu/combine.h"

#include <hwy/cache_control.h>

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

// out = f(a, b). Past the caches go whole vectors of aligned elements.
template <typename T, class F>
HWY_INLINE void map(T* out, const T* a, const T* b, std::int64_t n, bool passing, F f) {
  const VectorsOf<T> d;
  const auto one = [=](std::int64_t i, std::int64_t count)
                       HWY_ATTR { return f(d, load(d, a + i, count), load(d, b + i, count)); };
  if constexpr (std::is_same_v<T, hn::TFromD<decltype(d)>>) {
    if (passing) {
      const std::int64_t step = lanes(d);
      std::int64_t i = 0;
      if (const std::int64_t head = until_aligned(out, step); head > 0 && n > head) {
        store(one(0, head), d, out, head);
        i = head;
      }
      for (; i + step <= n; i += step) {
        hn::Stream(one(i, step), d, out + i);
      }
      if (i < n) {
        store(one(i, n - i), d, out + i, n - i);
      }
      hwy::FlushStream();
      return;
    }
  }
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    store(one(i, count), d, out + i, count);
  });
}

template <typename T>
void combine(void* untyped_out, const void* untyped_a, const void* untyped_b, std::int64_t n,
             ReduceOp op, bool passing) {
  auto* out = static_cast<T*>(untyped_out);
  const auto* a = static_cast<const T*>(untyped_a);
  const auto* b = static_cast<const T*>(untyped_b);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      map(out, a, b, n, passing, [](auto d, auto x, auto y) HWY_ATTR { return add(d, x, y); });
      return;
    case ReduceOp::min:
      map(out, a, b, n, passing,
          [](auto, auto x, auto y) HWY_ATTR { return or_nan(hn::Min(x, y), x, y); });
      return;
    case ReduceOp::max:
      map(out, a, b, n, passing,
          [](auto, auto x, auto y) HWY_ATTR { return or_nan(hn::Max(x, y), x, y); });
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
