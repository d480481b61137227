#include <complex>
#include <numeric>

#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

struct Heads {
  std::int64_t batch, length;
  int heads;
  std::int64_t head_size, width;
};
// Nothing, one token, rows with more than what is turned, odd numbers, enough for three threads.
constexpr Heads heads_of_rows[] = {
    {0, 3, 2, 4, 8}, {1, 1, 1, 2, 2}, {2, 5, 3, 6, 25}, {1, 7, 2, 34, 68}, {2, 400, 3, 16, 80}};
constexpr double theta = 1e4;

// A pair is a complex number, and to turn it is to multiply it by e^(i angle).
Values turned(const Heads& c, Values x, int sign) {
  const std::int64_t half = c.head_size / 2;
  for (std::int64_t row = 0; row < c.batch * c.length; ++row) {
    for (std::int64_t head = 0; head < c.heads; ++head) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double frequency =
            std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(c.head_size));
        const double angle = sign * static_cast<double>(row % c.length) * frequency;
        const auto a = static_cast<std::size_t>(row * c.width + head * c.head_size + i);
        const std::size_t b = a + static_cast<std::size_t>(half);
        const std::complex<double> z = std::complex<double>(x[a], x[b]) * std::polar(1.0, angle);
        x[a] = z.real();
        x[b] = z.imag();
      }
    }
  }
  return x;
}

TEST(CpuRotary, TurnsByTheDefinitionBothWays) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const Heads& c : heads_of_rows) {
      for (const int sign : {1, -1}) {
        SCOPED_TRACE(testing::Message() << c.length << " x " << c.width << ", sign " << sign);
        const Tensor x = random_tensor(backend, dtype, Shape{c.batch, c.length, c.width}, 1);
        const Values before = backend.download_values(x);
        backend.rotary(x, c.heads, c.head_size, theta, sign);
        // Both of a pair are at most some 6, so what cancels is.
        expect_close(backend, x, turned(c, before, sign), Values(before.size(), 10), 4, "x");
      }
    }
  });
}

// Values of the published convention: the first position stays, and at position 1 the first pair of
// a head of 4, its elements 0 and 2, turns by 1 and the second by theta^(-1/2) = 1/100.
TEST(CpuRotary, PairsTheHalvesOfAHead) {
  const auto backend = poisoned_backend(1);
  const Tensor x = tensor_of(*backend, DType::f64, Shape{1, 2, 4}, {1, 2, 3, 4, 1, 0, 0, 1});
  backend->rotary(x, 1, 4, 1e4, 1);
  const Values values = backend->download_values(x);
  EXPECT_EQ(Values(values.begin(), values.begin() + 4), (Values{1, 2, 3, 4}));
  EXPECT_NEAR(values[4], std::cos(1), 1e-15);
  EXPECT_NEAR(values[6], std::sin(1), 1e-15);
  EXPECT_NEAR(values[5], -std::sin(0.01), 1e-15);
  EXPECT_NEAR(values[7], std::cos(0.01), 1e-15);
}

// What rotary positions are for: the product of a query and a key depends on their distance only.
TEST(CpuRotary, ProductsDependOnTheDistance) {
  const auto backend = poisoned_backend(1);
  constexpr std::int64_t length = 50, size = 8;
  const auto turned_everywhere = [&](std::uint32_t stream) {
    const Values one =
        backend->download_values(random_tensor(*backend, DType::f64, Shape{size}, stream));
    Values all;
    for (std::int64_t t = 0; t < length; ++t) {
      all.insert(all.end(), one.begin(), one.end());
    }
    const Tensor x = tensor_of(*backend, DType::f64, Shape{1, length, size}, all);
    backend->rotary(x, 1, size, 5e5, 1);
    return backend->download_values(x);
  };
  const Values q = turned_everywhere(1);
  const Values k = turned_everywhere(2);
  const auto product = [&](std::int64_t query, std::int64_t key) {
    return std::inner_product(q.begin() + query * size, q.begin() + (query + 1) * size,
                              k.begin() + key * size, 0.0);
  };
  EXPECT_NEAR(product(49, 42), product(7, 0), 1e-13);
  EXPECT_GT(std::abs(product(49, 42) - product(8, 0)), 1e-3);
}

TEST(CpuRotary, BackwardIsTheDerivativeOfForward) {
  const auto backend = poisoned_backend(1);
  const Shape shape{1, 3, 10};
  const Values x = backend->download_values(random_tensor(*backend, DType::f64, shape, 1));
  const Values dy = backend->download_values(random_tensor(*backend, DType::f64, shape, 2));
  const auto loss = [&](const Values& v) {
    const Tensor y = tensor_of(*backend, DType::f64, shape, v);
    backend->rotary(y, 2, 4, theta, 1);
    return dot(backend->download_values(y), dy);
  };
  const Tensor dx = tensor_of(*backend, DType::f64, shape, dy);
  backend->rotary(dx, 2, 4, theta, -1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(backend->download_values(dx)[i], central_difference(loss, x, i), 1e-8);
  }
}

TEST(CpuRotary, Misfits) {
  const auto backend = poisoned_backend(1);
  const Tensor x = backend->zeros(DType::f32, Shape{2, 3, 8}, Category::activations);
  EXPECT_THROW(backend->rotary(x, 3, 4, theta, 1), std::invalid_argument);
  EXPECT_THROW(backend->rotary(x, 1, 3, theta, 1), std::invalid_argument);
  EXPECT_THROW(backend->rotary(x, 0, 4, theta, 1), std::invalid_argument);
  EXPECT_THROW(backend->rotary(x, 1, 4, 0, 1), std::invalid_argument);
  EXPECT_THROW(backend->rotary(x, 1, 4, theta, 2), std::invalid_argument);
  EXPECT_THROW(backend->rotary(x.view(Shape{6, 8}), 1, 4, theta, 1), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
