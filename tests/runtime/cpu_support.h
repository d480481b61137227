// What the tests of the CPU backend share: every configuration of it, tensors of known values, and
// how far a result may lie from a reference that was computed in f64.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/backend.h"
#include "runtime/cpu/instruction_sets.h"

namespace ringworld {

inline constexpr DType floating_dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

using Values = std::vector<double>;

// What norms add below the root.
inline constexpr double epsilon = 1e-5;

// Where element (row, column) of rows of `width` is.
inline std::size_t at(std::int64_t row, std::int64_t column, std::int64_t width) {
  return static_cast<std::size_t>(row * width + column);
}

inline std::unique_ptr<Backend> poisoned_backend(int threads) {
  return make_cpu_backend(Device::create({.budget = Bytes(0), .poison = true}), threads);
}

// body(backend) for 1, 2 and 3 threads, and on one thread for each slower instruction set of this
// machine. Memory is poisoned: what is read before it is written is NaN.
inline void for_each_backend(const std::function<void(Backend&)>& body) {
  int threads = 3;
  for (const std::string& set : available_instruction_sets()) {
    use_instruction_set(set);
    for (; threads >= 1; --threads) {
      SCOPED_TRACE(set + ", threads " + std::to_string(threads));
      const auto backend = poisoned_backend(threads);
      body(*backend);
    }
    threads = 1;
  }
  use_instruction_set("");
}

// The same, with each floating dtype.
inline void for_each_configuration(const std::function<void(Backend&, DType)>& body) {
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : floating_dtypes) {
      SCOPED_TRACE(std::string(name_of(dtype)));
      body(backend, dtype);
    }
  });
}

// body(backend, dtype, gradient) where `gradient` is each dtype that the gradient of a parameter
// may have in calls of `dtype`.
inline void for_each_gradient_configuration(
    const std::function<void(Backend&, DType, DType)>& body) {
  for_each_configuration([&](Backend& backend, DType dtype) {
    body(backend, dtype, dtype);
    if (gradient_dtype(dtype) != dtype) {
      SCOPED_TRACE("wide gradients");
      body(backend, dtype, gradient_dtype(dtype));
    }
  });
}

// A tensor of random numbers around 0 with the given deviation.
inline Tensor random_tensor(Backend& backend, DType dtype, Shape shape, std::uint32_t stream,
                            double deviation = 1) {
  Values values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = deviation * random_normal({.seed = 7, .stream = stream}, i);
  }
  const Tensor tensor = backend.empty(dtype, shape, Category::activations);
  backend.upload_values(tensor, values);
  return tensor;
}

inline Tensor tensor_of(Backend& backend, DType dtype, Shape shape, const Values& values) {
  const Tensor tensor = backend.empty(dtype, shape, Category::activations);
  backend.upload_values(tensor, values);
  return tensor;
}

// Half a unit in the last place, relative: what one rounding to the format changes at most.
inline double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    default:
      return 0x1p-11;
  }
}

// What one rounding among the smallest numbers changes at most.
inline double smallest_rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-1074;
    case DType::f16:
      return 0x1p-25;
    default:
      return 0x1p-127;
  }
}

// The bound on one element: one rounding of the result, and `roundings` roundings, in the type in
// which it is computed, of terms that add up to `magnitude`.
inline double error_bound(DType dtype, double expected, double magnitude, double roundings) {
  return rounding_of(dtype) * std::abs(expected) + 2 * smallest_rounding_of(dtype) +
         roundings * rounding_of(wide_dtype(dtype)) * magnitude;
}

// Every element within error_bound; a NaN never is.
inline void expect_close(Backend& backend, const Tensor& actual, const Values& expected,
                         const Values& magnitudes, double roundings, const std::string& what) {
  const Values values = backend.download_values(actual);
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double bound =
        error_bound(actual.dtype(), expected[i], std::abs(magnitudes[i]), roundings);
    ASSERT_TRUE(std::abs(values[i] - expected[i]) <= bound)
        << what << "[" << i << "]: " << values[i] << ", expected " << expected[i] << " within "
        << bound;
  }
}

// The derivative of f at x along element i, by a central difference; f is computed in f64, so for
// values around 1 the error is some 1e-9.
inline double central_difference(const std::function<double(const Values&)>& f, Values x,
                                 std::size_t i) {
  constexpr double h = 1e-5;
  const double at = x[i];
  x[i] = at + h;
  const double above = f(x);
  x[i] = at - h;
  return (above - f(x)) / (2 * h);
}

inline double dot(const Values& a, const Values& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    total += a[i] * b[i];
  }
  return total;
}

}  // namespace ringworld
