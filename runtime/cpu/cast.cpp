#include "runtime/cpu/cast.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/cast.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {
namespace {

// In f64 when one of the two is f64, else in f32: a value is rounded to what the output can hold.
template <typename Out, typename In>
void cast(void* untyped_out, const void* untyped_x, std::int64_t n) {
  auto* out = static_cast<Out*>(untyped_out);
  const auto* x = static_cast<const In*>(untyped_x);
  constexpr bool wide = std::is_same_v<Out, double> || std::is_same_v<In, double>;
  const hn::ScalableTag<std::conditional_t<wide, double, float>> d;
  for_each_vector(d, n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    store(load(d, x + i, count), d, out + i, count);
  });
}

template <typename Out>
CastKernel cast_from(DType x) {
  return with_floating_type(x, []<typename In>() -> CastKernel { return cast<Out, In>; });
}

}  // namespace

CastKernel find_cast(DType out, DType x) {
  return with_floating_type(out, [x]<typename Out>() { return cast_from<Out>(x); });
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(find_cast);

CastKernel cast_kernel(DType out, DType x) {
  return HWY_DYNAMIC_DISPATCH(find_cast)(out, x);
}

}  // namespace ringworld
#endif
