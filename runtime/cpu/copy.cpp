#include "runtime/cpu/copy.h"

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/copy.cpp"
#include <hwy/foreach_target.h>
// What follows is compiled once for each instruction set.
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringworld::HWY_NAMESPACE {

void copy_streaming(std::uint8_t* to, const std::uint8_t* from, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::int64_t step = lanes(d);
  std::int64_t i = std::min(bytes, until_aligned(to, step));
  std::memcpy(to, from, static_cast<std::size_t>(i));
  for (; i + step <= bytes; i += step) {
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
  }
  std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
  hwy::FlushStream();  // before anybody is told that it is there
}

}  // namespace ringworld::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringworld {

HWY_EXPORT(copy_streaming);

void copy_past_caches(void* to, const void* from, std::int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy_streaming)
  (static_cast<std::uint8_t*>(to), static_cast<const std::uint8_t*>(from), bytes);
}

}  // namespace ringworld
#endif
