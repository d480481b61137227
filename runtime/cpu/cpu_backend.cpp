#include "runtime/cpu/cpu_backend.h"

#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/cpu/cast.h"
#include "runtime/cpu/checks.h"
#include "runtime/cpu/combine.h"
#include "runtime/cpu/copy.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/fingerprint.h"
#include "runtime/cpu/normal.h"
#include "runtime/cpu/optimizers.h"
#include "runtime/cpu/parallel.h"
#include "runtime/raw.h"

namespace ringworld {
namespace {

void copy_on_threads(int threads, std::byte* to, const std::byte* from, Bytes bytes, bool passing) {
  constexpr std::int64_t grain = 1 << 18;
  for_each_range(threads, bytes.value, grain, [=](std::int64_t begin, std::int64_t end) {
    if (passing) {
      copy_past_caches(to + begin, from + begin, end - begin);
    } else if (begin < end) {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
    }
  });
}

// The sum of f(begin, end) over the parts of [0, elements), in the order of the parts.
template <typename Sum, typename F>
Sum sum_over_parts(int threads, std::int64_t elements, const F& f) {
  std::vector<Sum> parts(
      static_cast<std::size_t>(count_parts(threads, elements, elements_per_part)));
  for_each_part(threads, elements, elements_per_part,
                [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
                  parts[static_cast<std::size_t>(part)] = f(begin, end);
                });
  Sum total{};
  for (const Sum& part : parts) {
    total += part;
  }
  return total;
}

}  // namespace

CpuBackend::CpuBackend(std::shared_ptr<Device> device, int threads)
    : Backend(std::move(device)), threads_(threads) {
  if (threads < 1) {
    throw std::invalid_argument(fmt::format("a CPU backend with {} threads", threads));
  }
}

std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<Device> device, int threads) {
  return std::make_unique<CpuBackend>(std::move(device), threads);
}

void CpuBackend::cast_unless_same(const Tensor& out, const Tensor& x) {
  if (!out.same_view(x)) {
    cast(out, x);
  }
}

// --- Moving data --------------------------------------------------------------------------------

void CpuBackend::upload(const Tensor& out, std::span<const std::byte> host) {
  check(out.defined() && out.bytes().value == static_cast<std::int64_t>(host.size()), "upload",
        fmt::format("a tensor of {} bytes", host.size()), {&out});
  copy_on_threads(threads_, raw_bytes(out), host.data(), out.bytes(), out.bytes() >= passing_bytes);
}

void CpuBackend::download(std::span<std::byte> host, const Tensor& x) {
  check(x.defined() && x.bytes().value == static_cast<std::int64_t>(host.size()), "download",
        fmt::format("a tensor of {} bytes", host.size()), {&x});
  copy_on_threads(threads_, host.data(), raw_bytes(x), x.bytes(), x.bytes() >= passing_bytes);
}

void CpuBackend::fill(const Tensor& out, double value) {
  check(out.defined(), "fill", "a tensor", {&out});
  with_any_type(out.dtype(), [&]<typename T>() {
    // A 16-bit format is filled as the integers that hold it, which the compiler vectorises.
    using Stored = std::conditional_t<is_16_bit_float<T>, std::uint16_t, T>;
    Stored element;
    if constexpr (is_16_bit_float<T>) {
      cast_kernel(out.dtype(), DType::f64)(&element, &value, 1);
    } else {
      element = static_cast<T>(value);
    }
    for_each_range(threads_, out.elements(), elements_per_part,
                   [&](std::int64_t begin, std::int64_t end) {
                     std::fill(raw<Stored>(out) + begin, raw<Stored>(out) + end, element);
                   });
  });
}

void CpuBackend::copy(const Tensor& out, const Tensor& x, bool passing) {
  check(out.defined() && x.defined() && out.dtype() == x.dtype() && out.elements() == x.elements(),
        "copy", "one dtype and equal element counts", {&out, &x});
  copy_on_threads(threads_, raw_bytes(out), raw_bytes(x), x.bytes(), passing);
}

void CpuBackend::cast(const Tensor& out, const Tensor& x) {
  check(out.defined() && x.defined() && is_floating(out.dtype()) && is_floating(x.dtype()) &&
            out.elements() == x.elements(),
        "cast", "floating dtypes and equal element counts", {&out, &x});
  const CastKernel kernel = cast_kernel(out.dtype(), x.dtype());
  const std::int64_t out_size = size_of(out.dtype()).value;
  const std::int64_t x_size = size_of(x.dtype()).value;
  for_each_range(
      threads_, x.elements(), elements_per_part, [&](std::int64_t begin, std::int64_t end) {
        kernel(raw_bytes(out) + begin * out_size, raw_bytes(x) + begin * x_size, end - begin);
      });
}

void CpuBackend::normal(const Tensor& out, const RandomKey& key, std::int64_t first_index,
                        double mean, double deviation) {
  check_floating("normal", {&out});
  with_floating_type(out.dtype(), [&]<typename T>() {
    const auto& kernels = normal_kernels().of<T>();
    for_each_range(
        threads_, out.elements(), elements_per_part, [&](std::int64_t begin, std::int64_t end) {
          kernels.normal(raw<T>(out) + begin, key, static_cast<std::uint64_t>(first_index + begin),
                         end - begin, mean, deviation);
        });
  });
}

// --- Elementwise and reductions -----------------------------------------------------------------

void CpuBackend::add(const Tensor& out, const Tensor& a, const Tensor& b) {
  check_elementwise("add", {&out, &a, &b});
  with_floating_type(out.dtype(), [&]<typename T>() {
    const auto& kernels = elementwise_kernels().of<T>();
    for_each_range(
        threads_, out.elements(), elements_per_part, [&](std::int64_t begin, std::int64_t end) {
          kernels.add(raw<T>(out) + begin, raw<T>(a) + begin, raw<T>(b) + begin, end - begin);
        });
  });
}

void CpuBackend::scale(const Tensor& x, double factor) {
  check_floating("scale", {&x});
  with_floating_type(x.dtype(), [&]<typename T>() {
    const auto& kernels = elementwise_kernels().of<T>();
    for_each_range(threads_, x.elements(), elements_per_part,
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels.scale(raw<T>(x) + begin, factor, end - begin);
                   });
  });
}

void CpuBackend::combine(const Tensor& out, const Tensor& a, const Tensor& b, ReduceOp op,
                         bool passing) {
  const auto fits = [&](const Tensor& x) {
    return x.defined() && x.dtype() == out.dtype() && x.elements() == out.elements();
  };
  check(out.defined() && fits(a) && fits(b), "combine", "one dtype and equal element counts",
        {&out, &a, &b});
  const CombineKernels kernels = combine_kernels(out.dtype());
  const std::int64_t size = size_of(out.dtype()).value;
  for_each_range(threads_, out.elements(), elements_per_part,
                 [&](std::int64_t begin, std::int64_t end) {
                   kernels.combine(raw_bytes(out) + begin * size, raw_bytes(a) + begin * size,
                                   raw_bytes(b) + begin * size, end - begin, op, passing);
                 });
}

void CpuBackend::divide(const Tensor& x, std::int64_t divisor) {
  check(x.defined() && divisor != 0, "divide", "a tensor and a divisor other than 0", {&x});
  const CombineKernels kernels = combine_kernels(x.dtype());
  const std::int64_t size = size_of(x.dtype()).value;
  for_each_range(threads_, x.elements(), elements_per_part,
                 [&](std::int64_t begin, std::int64_t end) {
                   kernels.divide(raw_bytes(x) + begin * size, end - begin, divisor);
                 });
}

double CpuBackend::sum(const Tensor& x) {
  check_floating("sum", {&x});
  return with_floating_type(x.dtype(), [&]<typename T>() {
    const auto& kernels = elementwise_kernels().of<T>();
    return sum_over_parts<double>(threads_, x.elements(),
                                  [&](std::int64_t begin, std::int64_t end) {
                                    return kernels.sum(raw<T>(x) + begin, end - begin);
                                  });
  });
}

WideSum CpuBackend::sum_of_squares(const Tensor& x) {
  check_floating("sum_of_squares", {&x});
  return with_floating_type(x.dtype(), [&]<typename T>() {
    const auto& kernels = elementwise_kernels().of<T>();
    return sum_over_parts<WideSum>(threads_, x.elements(),
                                   [&](std::int64_t begin, std::int64_t end) {
                                     return kernels.sum_of_squares(raw<T>(x) + begin, end - begin);
                                   });
  });
}

std::int64_t CpuBackend::fingerprint(const Tensor& x) {
  check(x.defined(), "fingerprint", "a tensor", {&x});
  const std::span<const std::byte> bytes(raw_bytes(x), static_cast<std::size_t>(x.bytes().value));
  constexpr std::int64_t chunk = fingerprint_chunk_bytes;
  const std::int64_t chunks = (x.bytes().value + chunk - 1) / chunk;
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(chunks));
  for_each_range(threads_, chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto first = static_cast<std::size_t>(i * chunk);
      const std::size_t count = std::min(static_cast<std::size_t>(chunk), bytes.size() - first);
      hashes[static_cast<std::size_t>(i)] = hash_bytes(bytes.subspan(first, count), 0);
    }
  });
  const std::uint64_t hash =
      hash_bytes(std::as_bytes(std::span(hashes)), static_cast<std::uint64_t>(x.elements()));
  return static_cast<std::int64_t>(hash >> 1);
}

// --- Optimizers ---------------------------------------------------------------------------------

void CpuBackend::adamw(const Tensor& parameter, const Tensor& first_moment,
                       const Tensor& second_moment, const Tensor& gradient, const AdamWStep& step) {
  check_elementwise("adamw", {&parameter, &first_moment, &second_moment, &gradient});
  check(step.step >= 1, "adamw", "steps that count from 1", {&parameter});
  with_floating_type(parameter.dtype(), [&]<typename T>() {
    const auto& kernels = optimizer_kernels().of<T>();
    for_each_range(threads_, parameter.elements(), elements_per_part,
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels.adamw(raw<T>(parameter) + begin, raw<T>(first_moment) + begin,
                                   raw<T>(second_moment) + begin, raw<T>(gradient) + begin,
                                   end - begin, step);
                   });
  });
}

void CpuBackend::sgd(const Tensor& parameter, const Tensor& velocity, const Tensor& gradient,
                     const SgdStep& step) {
  check_elementwise("sgd", {&parameter, &gradient});
  if (velocity.defined()) {
    check_elementwise("sgd", {&parameter, &velocity});
  } else {
    check(step.momentum == 0, "sgd", "a velocity, as momentum is not 0", {&parameter, &velocity});
  }
  with_floating_type(parameter.dtype(), [&]<typename T>() {
    const auto& kernels = optimizer_kernels().of<T>();
    for_each_range(threads_, parameter.elements(), elements_per_part,
                   [&](std::int64_t begin, std::int64_t end) {
                     T* const v = velocity.defined() ? raw<T>(velocity) + begin : nullptr;
                     kernels.sgd(raw<T>(parameter) + begin, v, raw<T>(gradient) + begin,
                                 end - begin, step);
                   });
  });
}

}  // namespace ringworld
