#include <algorithm>
#include <cstring>

#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

// Nothing, less than a vector, odd, and enough for three threads with a remainder.
constexpr std::int64_t sizes[] = {0, 1, 3, 7, 65, 1009, 49999};

Values ones(std::size_t n) {
  return Values(n, 1.0);
}

TEST(CpuData, UploadAndDownloadKeepTheBytes) {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : all_dtypes) {
      for (const std::int64_t n : {0, 1, 7, 300001}) {
        const Tensor x = backend.empty(dtype, Shape{n}, Category::activations);
        std::vector<std::byte> bytes(static_cast<std::size_t>(x.bytes().value));
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          bytes[i] = static_cast<std::byte>(i * 31 % 251);
        }
        backend.upload(x, bytes);
        std::vector<std::byte> back(bytes.size());
        backend.download(back, x);
        EXPECT_EQ(back, bytes);
        const Tensor y = backend.empty(dtype, Shape{n}, Category::activations);
        backend.copy(y, x);
        std::fill(back.begin(), back.end(), std::byte{0});
        backend.download(back, y);
        EXPECT_EQ(back, bytes);
      }
    }
  });
}

TEST(CpuData, FillSetsEveryElementOfAnyDtype) {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : all_dtypes) {
      for (const std::int64_t n : sizes) {
        const Tensor x = backend.empty(dtype, Shape{n}, Category::activations);
        backend.fill(x, -3);
        EXPECT_EQ(backend.download_values(x), Values(static_cast<std::size_t>(n), -3.0));
        EXPECT_EQ(backend.download_values(backend.zeros(dtype, Shape{n}, Category::activations)),
                  Values(static_cast<std::size_t>(n), 0.0));
      }
    }
  });
}

TEST(CpuData, CastRoundsEveryPairOfFormatsToNearestEven) {
  // Ties in both 16-bit formats, their limits, subnormals, and what is not finite.
  Values special = {0,
                    -0.0,
                    1 + 0x1p-8,
                    1 + 3 * 0x1p-8,
                    1 + 0x1p-11,
                    1 + 0x1.8p-10,
                    65504,
                    65519.99,
                    65520,
                    1e30,
                    0x1p-24,
                    0x1p-25,
                    0x1.8p-25,
                    0x1p-14,
                    -0x1.1p-20,
                    3.4e38,
                    std::numeric_limits<double>::infinity()};
  for (std::uint64_t i = 0; i < 40000; ++i) {
    const double z = random_normal({}, i);
    special.push_back(std::ldexp(z, static_cast<int>(i % 60) - 40));
  }
  for_each_backend([&](Backend& backend) {
    for (const DType from : floating_dtypes) {
      const auto n = static_cast<std::int64_t>(special.size());
      const Tensor x = tensor_of(backend, from, Shape{n}, special);
      const Values held = backend.download_values(x);
      for (const DType to : floating_dtypes) {
        SCOPED_TRACE(std::string(name_of(from)) + " to " + std::string(name_of(to)));
        const Tensor y = backend.empty(to, Shape{n}, Category::activations);
        backend.cast(y, x);
        const Tensor expected = tensor_of(backend, to, Shape{n}, held);
        EXPECT_EQ(backend.download_values(y), backend.download_values(expected));
      }
    }
    // NaN stays NaN, also with a payload in the lower bits only.
    const Tensor x = backend.empty(DType::f32, Shape{33}, Category::activations);
    const std::vector<std::uint32_t> bits(33, 0x7f800001u);
    backend.upload(x, std::as_bytes(std::span(bits)));
    for (const DType to : floating_dtypes) {
      const Tensor y = backend.empty(to, Shape{33}, Category::activations);
      backend.cast(y, x);
      for (const double value : backend.download_values(y)) {
        EXPECT_TRUE(std::isnan(value)) << name_of(to);
      }
    }
  });
}

TEST(CpuData, NormalIsTheDefinitionElementForElement) {
  const RandomKey key{
      .seed = 0x123456789abcdef0u, .purpose = Purpose::initial_weights, .stream = 99};
  for_each_configuration([&](Backend& backend, DType dtype) {
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{1}, (std::int64_t{1} << 33) - 5}) {
      for (const std::int64_t n : {0, 1, 3, 65, 33333}) {
        const Tensor x = backend.empty(dtype, Shape{n}, Category::parameters);
        backend.normal(x, key, first, 0.5, 0.02);
        Values expected;
        Values magnitudes;
        for (std::int64_t i = 0; i < n; ++i) {
          const double z = random_normal(key, static_cast<std::uint64_t>(first + i));
          expected.push_back(0.5 + 0.02 * z);
          magnitudes.push_back(0.5 + 0.02 * 7);
        }
        expect_close(backend, x, expected, magnitudes, 4, "normal");
      }
    }
  });
}

TEST(CpuElementwise, AddAlsoInPlace) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const std::int64_t n : sizes) {
      const Tensor a = random_tensor(backend, dtype, Shape{n}, 1);
      const Tensor b = random_tensor(backend, dtype, Shape{n}, 2);
      const Values av = backend.download_values(a);
      const Values bv = backend.download_values(b);
      Values expected(av.size());
      std::transform(av.begin(), av.end(), bv.begin(), expected.begin(), std::plus<>());
      const Tensor out = backend.empty(dtype, Shape{n}, Category::activations);
      backend.add(out, a, b);
      expect_close(backend, out, expected, expected, 1, "add");
      const Values first = backend.download_values(out);
      const Tensor a_copy = tensor_of(backend, dtype, Shape{n}, av);
      backend.add(a_copy, a_copy, b);
      EXPECT_EQ(backend.download_values(a_copy), first);
      backend.add(b, a, b);
      EXPECT_EQ(backend.download_values(b), first);
    }
  });
}

TEST(CpuElementwise, Scale) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const std::int64_t n : sizes) {
      const Tensor x = random_tensor(backend, dtype, Shape{n}, 1);
      Values expected = backend.download_values(x);
      for (double& value : expected) {
        value *= 0.3;
      }
      backend.scale(x, 0.3);
      expect_close(backend, x, expected, expected, 2, "scale");
    }
  });
}

TEST(CpuElementwise, SumsAreInF64) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const std::int64_t n : sizes) {
      const Tensor x = random_tensor(backend, dtype, Shape{n}, 3);
      double sum = 0;
      double magnitude = 0;
      double squares = 0;
      for (const double value : backend.download_values(x)) {
        sum += value;
        magnitude += std::abs(value);
        squares += value * value;
      }
      EXPECT_NEAR(backend.sum(x), sum, 1e-13 * magnitude);
      EXPECT_NEAR(backend.sum_of_squares(x).value(), squares, 1e-13 * squares);
      EXPECT_EQ(backend.sum(x), backend.sum(x));
    }
  });
}

// An element's bits may not depend on where the tensor was cut: shards and buckets rely on it.
TEST(CpuElementwise, BitsDoNotDependOnThePosition) {
  for_each_configuration([](Backend& backend, DType dtype) {
    const std::int64_t n = 203;
    const Tensor x = random_tensor(backend, dtype, Shape{n}, 4);
    const Tensor whole = backend.empty(dtype, Shape{n}, Category::activations);
    backend.gelu_forward(whole, x);
    const Tensor pieces = backend.empty(dtype, Shape{n}, Category::activations);
    for (std::int64_t first = 0, count = 1; first < n; first += count, ++count) {
      count = std::min(count, n - first);
      backend.gelu_forward(pieces.slice(first, count), x.slice(first, count));
    }
    EXPECT_EQ(backend.download_values(pieces), backend.download_values(whole));
  });
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_derivative(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  const double t = std::tanh(u);
  const double du = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du;
}

TEST(CpuGelu, ForwardAndBackward) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const std::int64_t n : sizes) {
      const Tensor x = random_tensor(backend, dtype, Shape{n}, 5, 3);
      const Tensor dy = random_tensor(backend, dtype, Shape{n}, 6);
      const Values xv = backend.download_values(x);
      const Values dyv = backend.download_values(dy);
      Values y_expected;
      Values dx_expected;
      Values y_magnitude;
      Values dx_magnitude;
      for (std::size_t i = 0; i < xv.size(); ++i) {
        y_expected.push_back(gelu(xv[i]));
        y_magnitude.push_back(std::abs(xv[i]));
        dx_expected.push_back(dyv[i] * gelu_derivative(xv[i]));
        dx_magnitude.push_back(std::abs(dyv[i]));
      }
      const Tensor y = backend.empty(dtype, Shape{n}, Category::activations);
      backend.gelu_forward(y, x);
      expect_close(backend, y, y_expected, y_magnitude, 8, "y");
      const Tensor dx = backend.empty(dtype, Shape{n}, Category::activations);
      backend.gelu_backward(dx, dy, x);
      expect_close(backend, dx, dx_expected, dx_magnitude, 24, "dx");
      const Values apart = backend.download_values(dx);
      backend.gelu_backward(dy, dy, x);
      EXPECT_EQ(backend.download_values(dy), apart) << "dx may be dy";
    }
  });
}

// Small arguments keep their relative precision, large ones neither overflow nor turn into NaN.
TEST(CpuGelu, ExtremeArguments) {
  for_each_backend([](Backend& backend) {
    const Values x = {1e-300, -1e-300, 1e-20, -1e-8, 1e-4, 40, -40, 1e30, -1e30, 0};
    const auto n = static_cast<std::int64_t>(x.size());
    const Tensor in = tensor_of(backend, DType::f64, Shape{n}, x);
    const Tensor out = backend.empty(DType::f64, Shape{n}, Category::activations);
    backend.gelu_forward(out, in);
    const Values y = backend.download_values(out);
    const Tensor dy = tensor_of(backend, DType::f64, Shape{n}, ones(x.size()));
    backend.gelu_backward(dy, dy, in);
    const Values dx = backend.download_values(dy);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], gelu(x[i]), 1e-15 * std::abs(gelu(x[i])) + 1e-250) << x[i];
      const double derivative = std::abs(x[i]) > 30 ? (x[i] > 0 ? 1 : 0) : gelu_derivative(x[i]);
      EXPECT_NEAR(dx[i], derivative, 1e-15) << x[i];
    }
    const Tensor nan = tensor_of(backend, DType::f64, Shape{1}, {std::nan("")});
    backend.gelu_forward(nan, nan.view(Shape{1, 1}));
    EXPECT_TRUE(std::isnan(backend.download_values(nan)[0]));
  });
}

TEST(CpuGelu, BackwardIsTheDerivativeOfForward) {
  const auto backend = poisoned_backend(1);
  const Values x = {-2.5, -0.7, -0.01, 0.3, 1.1, 4};
  const Shape shape{6};
  const Tensor dx = tensor_of(*backend, DType::f64, shape, ones(6));
  backend->gelu_backward(dx, dx, tensor_of(*backend, DType::f64, shape, x));
  const auto total = [&](const Values& at) {
    const Tensor y = backend->empty(DType::f64, shape, Category::activations);
    backend->gelu_forward(y, tensor_of(*backend, DType::f64, shape, at));
    return backend->sum(y);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(backend->download_values(dx)[i], central_difference(total, x, i), 1e-8);
  }
}

TEST(CpuFingerprint, SeesEveryByteAndTheCount) {
  const auto one = poisoned_backend(1);
  std::vector<std::byte> bytes(3 * (1 << 20) + 77);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(random_bits({}, i) & 0xff);
  }
  const auto of = [&](Backend& backend, std::span<const std::byte> content) {
    const Tensor x = backend.empty(DType::i8, Shape{static_cast<std::int64_t>(content.size())},
                                   Category::parameters);
    backend.upload(x, content);
    return backend.fingerprint(x);
  };
  const std::int64_t whole = of(*one, bytes);
  EXPECT_GE(whole, 0);
  // Ranks on unlike machines must agree.
  for_each_backend([&](Backend& backend) { EXPECT_EQ(of(backend, bytes), whole); });
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, std::size_t{63}, std::size_t{64},
                               std::size_t{1} << 20, bytes.size() - 1}) {
    bytes[at] ^= std::byte{0x10};
    EXPECT_NE(of(*one, bytes), whole) << at;
    bytes[at] ^= std::byte{0x10};
  }
  std::swap(bytes[8], bytes[72]);
  EXPECT_NE(of(*one, bytes), whole) << "order counts";
  // Zeros in other numbers, or of another type, are other tensors.
  std::vector<std::int64_t> seen;
  for (const std::int64_t n : {0, 1, 2, 8, 64, 65}) {
    for (const DType dtype : {DType::i8, DType::f64}) {
      seen.push_back(one->fingerprint(one->zeros(dtype, Shape{n}, Category::parameters)));
    }
  }
  std::sort(seen.begin() + 2, seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin() + 2, seen.end()), seen.end());
}

TEST(CpuChecks, MisfitsNameVerbAndShapes) {
  const auto backend = poisoned_backend(1);
  const Tensor a = random_tensor(*backend, DType::f32, Shape{2, 3}, 1);
  const Tensor b = random_tensor(*backend, DType::f32, Shape{7}, 1);
  const Tensor wide = random_tensor(*backend, DType::f64, Shape{2, 3}, 1);
  const Tensor integers = backend->zeros(DType::i32, Shape{2, 3}, Category::activations);
  try {
    backend->add(a, a, b);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("add"), std::string::npos) << message;
    EXPECT_NE(message.find("(2, 3)"), std::string::npos) << message;
    EXPECT_NE(message.find("(7)"), std::string::npos) << message;
  }
  std::vector<std::byte> bytes(5);
  EXPECT_THROW(backend->upload(a, bytes), std::invalid_argument);
  EXPECT_THROW(backend->download(bytes, a), std::invalid_argument);
  EXPECT_THROW(backend->add(a, a, wide), std::invalid_argument);
  EXPECT_THROW(backend->add(integers, integers, integers), std::invalid_argument);
  EXPECT_THROW(backend->add(a, a, Tensor()), std::invalid_argument);
  EXPECT_THROW(backend->copy(a, wide), std::invalid_argument);
  EXPECT_THROW(backend->copy(a, b), std::invalid_argument);
  EXPECT_THROW(backend->cast(a, integers), std::invalid_argument);
  EXPECT_THROW(backend->cast(a, b), std::invalid_argument);
  EXPECT_THROW(backend->scale(integers, 2), std::invalid_argument);
  EXPECT_THROW(backend->normal(integers, {}, 0, 0, 1), std::invalid_argument);
  EXPECT_THROW(backend->sum(integers), std::invalid_argument);
  EXPECT_THROW(backend->sum_of_squares(integers), std::invalid_argument);
  EXPECT_THROW(backend->fill(Tensor(), 0), std::invalid_argument);
  EXPECT_THROW(backend->fingerprint(Tensor()), std::invalid_argument);
  EXPECT_THROW(backend->gelu_forward(a, b), std::invalid_argument);
  EXPECT_THROW(backend->gelu_backward(a, a, wide), std::invalid_argument);
  EXPECT_THROW(make_cpu_backend(Device::create({}), 0), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
