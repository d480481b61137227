// GELU, SwiGLU, rotary positions and dropout.
#include <cmath>

#include <fmt/format.h>

#include "runtime/cpu/checks.h"
#include "runtime/cpu/cpu_backend.h"
#include "runtime/cpu/dropout.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/rotary.h"
#include "runtime/cpu/swiglu.h"
#include "runtime/cpu/workspace.h"
#include "runtime/raw.h"

namespace ringworld {

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

// --- SwiGLU -------------------------------------------------------------------------------------

namespace {

void check_swiglu(std::string_view verb, const Tensor& y, const Tensor& x) {
  check_floating(verb, {&y, &x});
  check(2 * width_of(y) == width_of(x) && 2 * y.elements() == x.elements(), verb,
        "rows of H for y, of 2H for x", {&y, &x});
}

}  // namespace

void CpuBackend::swiglu_forward(const Tensor& y, const Tensor& x) {
  check_swiglu("swiglu_forward", y, x);
  const std::int64_t width = width_of(y);
  with_floating_type(y.dtype(), [&]<typename T>() {
    const auto& kernels = swiglu_kernels().of<T>();
    for_each_range(threads_, y.shape().rows(), rows_per_part(width),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const T* const gate = raw<T>(x) + 2 * row * width;
                       kernels.forward(raw<T>(y) + row * width, gate, gate + width, width);
                     }
                   });
  });
}

void CpuBackend::swiglu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x) {
  check_swiglu("swiglu_backward", dy, x);
  check_swiglu("swiglu_backward", dy, dx);
  const std::int64_t width = width_of(dy);
  with_floating_type(dy.dtype(), [&]<typename T>() {
    const auto& kernels = swiglu_kernels().of<T>();
    for_each_range(threads_, dy.shape().rows(), rows_per_part(width),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const T* const gate = raw<T>(x) + 2 * row * width;
                       T* const dgate = raw<T>(dx) + 2 * row * width;
                       kernels.backward(dgate, dgate + width, raw<T>(dy) + row * width, gate,
                                        gate + width, width);
                     }
                   });
  });
}

// --- Rotary positions ---------------------------------------------------------------------------

// Threads share the positions, whose angles are those of every sequence and head.
void CpuBackend::rotary(const Tensor& x, int heads, std::int64_t head_size, double theta,
                        int sign) {
  check_floating("rotary", {&x});
  const bool fits = x.shape().axes() == 3 && heads >= 1 && head_size >= 2 && head_size % 2 == 0 &&
                    heads * head_size <= x.shape()[2] && theta > 0 && (sign == 1 || sign == -1);
  check(fits, "rotary",
        fmt::format("x (B, T, at least {} x {}), heads of even size, theta {} above 0 and sign {} "
                    "1 or -1",
                    heads, head_size, theta, sign),
        {&x});
  const std::int64_t batch = x.shape()[0];
  const std::int64_t length = x.shape()[1];
  const std::int64_t stride = x.shape()[2];
  const std::int64_t half = head_size / 2;
  const Tensor angles = rotary_workspace(*this, x, heads, head_size);
  with_floating_type(x.dtype(), [&]<typename T>() {
    using Lane = ComputeType<T>;
    const auto turn = rotary_kernels().of<T>().turn;
    const auto run = [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      Lane* const cosines = raw<Lane>(angles) + part * head_size;
      Lane* const sines = cosines + half;
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t i = 0; i < half; ++i) {
          const double exponent = -2 * static_cast<double>(i) / static_cast<double>(head_size);
          const double angle = static_cast<double>(t) * std::pow(theta, exponent);
          cosines[i] = static_cast<Lane>(std::cos(angle));
          sines[i] = static_cast<Lane>(sign * std::sin(angle));
        }
        for (std::int64_t b = 0; b < batch; ++b) {
          T* const row = raw<T>(x) + (b * length + t) * stride;
          for (std::int64_t head = 0; head < heads; ++head) {
            T* const first = row + head * head_size;
            turn(first, first + half, cosines, sines, half);
          }
        }
      }
    };
    for_each_part(threads_, length, rotary_grain(x, heads, head_size), run);
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
      copy(out, x, /*passing=*/false);
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

}  // namespace ringworld
