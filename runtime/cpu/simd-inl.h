// Vectors over tensors of any element type, for the kernels of the CPU backend.
//
// Highway compiles a kernel file once per instruction set, each time in another HWY_NAMESPACE, and
// this file with it; hence the include guard that toggles. A kernel computes in ComputeType<T>, and
// load and store widen and round on the way.
#if defined(RINGWORLD_RUNTIME_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGWORLD_RUNTIME_CPU_SIMD_INL_H_
#undef RINGWORLD_RUNTIME_CPU_SIMD_INL_H_
#else
#define RINGWORLD_RUNTIME_CPU_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <hwy/highway.h>
// Below highway.h, on which it depends.
#include <hwy/contrib/math/math-inl.h>

#include "runtime/cpu/types.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The descriptor of vectors in which elements of T are computed.
template <typename T>
using VectorsOf = hn::ScalableTag<ComputeType<T>>;

template <class D>
HWY_INLINE std::int64_t lanes(D d) {
  return static_cast<std::int64_t>(hn::Lanes(d));
}

// One vector from p: widened to the lanes of d.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* p) {
  using Lane = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, Lane>) {
    return hn::LoadU(d, p);
  } else if constexpr (std::is_same_v<Lane, double>) {
    return hn::PromoteTo(d, load(hn::Rebind<float, D>(), p));
#if HWY_TARGET == HWY_SCALAR
  } else {
    return hn::Set(d, to_float(*p));
  }
#else
  } else if constexpr (std::is_same_v<T, bf16>) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
  } else {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  }
#endif
}

// One vector to p, rounded to nearest even. From f64 to a 16-bit format it passes through f32.
template <class D, typename T>
HWY_INLINE void store(hn::Vec<D> v, D d, T* p) {
  using Lane = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, Lane>) {
    hn::StoreU(v, d, p);
#if HWY_TARGET == HWY_SCALAR
    // Highway's scalar conversions to smaller types make infinities finite and truncate.
  } else if constexpr (std::is_same_v<T, float>) {
    *p = static_cast<float>(hn::GetLane(v));
  } else if constexpr (std::is_same_v<T, bf16>) {
    *p = to_bf16(static_cast<float>(hn::GetLane(v)));
  } else {
    *p = to_f16(static_cast<float>(hn::GetLane(v)));
  }
#else
  } else if constexpr (std::is_same_v<Lane, double>) {
    const hn::Rebind<float, D> narrow;
    store(hn::DemoteTo(narrow, v), narrow, p);
  } else if constexpr (std::is_same_v<T, bf16>) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    const auto bits = hn::BitCast(d32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(d32, 0x7fffu)), odd);
    // A NaN must not become an infinity, or wrap around: its quiet bit is set instead.
    const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000u));
    const auto is_number = hn::RebindMask(d32, hn::Eq(v, v));
    const auto result = hn::ShiftRight<16>(hn::IfThenElse(is_number, rounded, quiet));
    hn::StoreU(hn::TruncateTo(d16, result), d16, reinterpret_cast<std::uint16_t*>(p));
  } else {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
  }
#endif
}

// The first `count` elements from p, zeros after them. `count` is the lanes of d except at the end
// of an array, so where it is a constant the branch goes away.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* p, std::int64_t count) {
  if (hn::MaxLanes(D()) == 1 || count == lanes(d)) {
    return load(d, p);
  }
  T padded[hn::MaxLanes(D())] = {};
  std::memcpy(padded, p, static_cast<std::size_t>(count) * sizeof(T));
  return load(d, padded);
}

template <class D, typename T>
HWY_INLINE void store(hn::Vec<D> v, D d, T* p, std::int64_t count) {
  if (hn::MaxLanes(D()) == 1 || count == lanes(d)) {
    store(v, d, p);
    return;
  }
  T padded[hn::MaxLanes(D())];
  store(v, d, padded);
  std::memcpy(p, padded, static_cast<std::size_t>(count) * sizeof(T));
}

// Elements from p to the next whole vector of `step`.
template <typename T>
HWY_INLINE std::int64_t until_aligned(const T* p, std::int64_t step) {
  const auto bytes = static_cast<std::int64_t>(sizeof(T)) * step;
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(p)) % bytes;
  return past == 0 ? 0 : (bytes - past) / static_cast<std::int64_t>(sizeof(T));
}

// body(i, count) for vectors at 0, lanes, 2 lanes, ...; count is less than the lanes only in the
// last. Every element is computed by the same instructions wherever it lies, so the bits of an
// elementwise result do not depend on how a tensor was cut into ranges, buckets or shards.
template <class D, class Body>
HWY_INLINE void for_each_vector(D d, std::int64_t n, Body body) {
  const std::int64_t step = lanes(d);
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    body(i, step);
  }
  if (i < n) {
    body(i, n - i);
  }
}

// The sum of term(i, count) over the vectors of [0, n). Four partial sums hide the latency of the
// addition and keep rounding errors small.
template <class D, class Term>
HWY_INLINE hn::TFromD<D> sum_of(D d, std::int64_t n, Term term) {
  const std::int64_t step = lanes(d);
  auto s0 = hn::Zero(d);
  auto s1 = hn::Zero(d);
  auto s2 = hn::Zero(d);
  auto s3 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    s0 = hn::Add(s0, term(i, step));
    s1 = hn::Add(s1, term(i + step, step));
    s2 = hn::Add(s2, term(i + 2 * step, step));
    s3 = hn::Add(s3, term(i + 3 * step, step));
  }
  for (; i + step <= n; i += step) {
    s0 = hn::Add(s0, term(i, step));
  }
  if (i < n) {
    const auto first = hn::FirstN(d, static_cast<std::size_t>(n - i));
    s1 = hn::Add(s1, hn::IfThenElseZero(first, term(i, n - i)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// The largest of x[0, n), n > 0. A NaN may get lost: what is computed from the result and x must
// not.
template <class D, typename T>
HWY_INLINE hn::TFromD<D> max_of(D d, const T* x, std::int64_t n) {
  const std::int64_t step = lanes(d);
  const auto lowest = hn::Set(d, -std::numeric_limits<hn::TFromD<D>>::infinity());
  auto m0 = lowest;
  auto m1 = lowest;
  std::int64_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    m0 = hn::Max(m0, load(d, x + i));
    m1 = hn::Max(m1, load(d, x + i + step));
  }
  for (; i < n; i += step) {
    const std::int64_t count = std::min(step, n - i);
    const auto first = hn::FirstN(d, static_cast<std::size_t>(count));
    m0 = hn::Max(m0, hn::IfThenElse(first, load(d, x + i, count), lowest));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
}

// e^x for x up to 88 (f32) or 706 (f64), within 1 unit in the last place; NaN stays NaN, which
// Highway's own Exp makes 0.
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x);
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the toggling guard
