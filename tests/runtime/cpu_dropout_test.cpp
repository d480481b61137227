// The dropout verb against its definition.
#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

const RandomKey key{.seed = 0x123456789abcdef0u, .purpose = Purpose::dropout, .stream = 99};

TEST(CpuDropout, IsTheDefinitionElementForElement) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{1}, (std::int64_t{1} << 33) - 5}) {
      for (const std::int64_t n : {0, 1, 3, 65, 33333}) {
        const double probability = 0.3;
        const Tensor x = random_tensor(backend, dtype, Shape{n}, 1);
        Values expected = backend.download_values(x);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const auto index = static_cast<std::uint64_t>(first) + i;
          const bool kept = random_uniform(key, index) >= probability;
          expected[i] = kept ? expected[i] / (1 - probability) : 0;
        }
        const Tensor out = backend.empty(dtype, Shape{n}, Category::activations);
        backend.dropout(out, x, key, first, probability);
        // One rounding of the factor and one of the product.
        expect_close(backend, out, expected, expected, 2, "dropout");
        const Values apart = backend.download_values(out);
        backend.dropout(x, x, key, first, probability);
        EXPECT_EQ(backend.download_values(x), apart) << "out may be x";
      }
    }
  });
}

TEST(CpuDropout, BitsDoNotDependOnThePosition) {
  for_each_configuration([](Backend& backend, DType dtype) {
    const std::int64_t n = 203;
    const Tensor x = random_tensor(backend, dtype, Shape{n}, 4);
    const Tensor whole = backend.empty(dtype, Shape{n}, Category::activations);
    backend.dropout(whole, x, key, 7, 0.25);
    for (std::int64_t first = 0, count = 1; first < n; first += count, ++count) {
      count = std::min(count, n - first);
      backend.dropout(x.slice(first, count), x.slice(first, count), key, 7 + first, 0.25);
    }
    EXPECT_EQ(backend.download_values(x), backend.download_values(whole));
  });
}

TEST(CpuDropout, WithProbability0CopiesEveryBit) {
  for_each_backend([](Backend& backend) {
    const std::vector<std::uint32_t> bits{0x7f800001u, 0x00000001u, 0x80000000u, 0xff800000u, 17u};
    const Tensor x = backend.empty(DType::f32, Shape{5}, Category::activations);
    backend.upload(x, std::as_bytes(std::span(bits)));
    const Tensor out = backend.empty(DType::f32, Shape{5}, Category::activations);
    backend.dropout(out, x, key, 0, 0);
    backend.dropout(out, out, key, 0, 0);
    std::vector<std::uint32_t> copied(5);
    backend.download(std::as_writable_bytes(std::span(copied)), out);
    EXPECT_EQ(copied, bits);
  });
}

// Of n ones the mean is 1, and its deviation sqrt(p / (1 - p) / n); five of them are enough for
// the one fixed key.
TEST(CpuDropout, PreservesTheMean) {
  constexpr std::int64_t n = 1 << 20;
  for (const double probability : {0.1, 0.5, 0.9}) {
    const auto backend = poisoned_backend(2);
    const Tensor x = backend->empty(DType::f32, Shape{n}, Category::activations);
    backend->fill(x, 1);
    backend->dropout(x, x, key, 0, probability);
    const double deviation = std::sqrt(probability / (1 - probability) / n);
    EXPECT_NEAR(backend->sum(x) / n, 1, 5 * deviation) << probability;
  }
}

TEST(CpuDropout, WhatIsDroppedIsZeroWhateverItWas) {
  for_each_backend([](Backend& backend) {
    const Tensor x = backend.empty(DType::f32, Shape{1000}, Category::activations);
    backend.fill(x, std::nan(""));
    backend.dropout(x, x, key, 0, 0.5);
    const Values values = backend.download_values(x);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::isnan(values[i]), random_uniform(key, i) >= 0.5) << i;
    }
  });
}

TEST(CpuDropout, Misfits) {
  const auto backend = poisoned_backend(1);
  const Tensor x = backend->zeros(DType::f32, Shape{4}, Category::activations);
  const Tensor other = backend->zeros(DType::f64, Shape{4}, Category::activations);
  for (const double probability : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THROW(backend->dropout(x, x, key, 0, probability), std::invalid_argument);
  }
  EXPECT_THROW(backend->dropout(x, x.slice(0, 3), key, 0, 0.5), std::invalid_argument);
  EXPECT_THROW(backend->dropout(x, other, key, 0, 0.5), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
