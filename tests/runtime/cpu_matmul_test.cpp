#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

struct Product {
  std::int64_t m, n, k;
};

// Empty axes, vectors, odd sizes, and both ways of cutting a product for several threads.
constexpr Product products[] = {{0, 3, 2},  {3, 0, 2},  {2, 3, 0},   {1, 1, 1},     {3, 7, 5},
                                {65, 1, 7}, {1, 65, 3}, {7, 13, 65}, {131, 67, 71}, {67, 257, 65}};

TEST(CpuMatmul, AllTransposesWithAndWithoutAccumulation) {
  for_each_gradient_configuration([](Backend& backend, DType dtype, DType out_dtype) {
    for (const Product& c : products) {
      for (int options = 0; options < 8; ++options) {
        const MatmulOptions o{.transpose_a = (options & 1) != 0,
                              .transpose_b = (options & 2) != 0,
                              .accumulate = (options & 4) != 0};
        SCOPED_TRACE(testing::Message()
                     << c.m << " " << c.n << " " << c.k << " options " << options);
        const Tensor a =
            random_tensor(backend, dtype, o.transpose_a ? Shape{c.k, c.m} : Shape{c.m, c.k}, 1);
        const Tensor b =
            random_tensor(backend, dtype, o.transpose_b ? Shape{c.n, c.k} : Shape{c.k, c.n}, 2);
        // Undefined content is NaN here, and must not show when it is overwritten.
        const Tensor out = o.accumulate
                               ? random_tensor(backend, out_dtype, Shape{c.m, c.n}, 3)
                               : backend.empty(out_dtype, Shape{c.m, c.n}, Category::activations);
        const Values av = backend.download_values(a);
        const Values bv = backend.download_values(b);
        Values expected = backend.download_values(out);
        Values magnitudes(expected.size());
        for (std::int64_t i = 0; i < c.m; ++i) {
          for (std::int64_t j = 0; j < c.n; ++j) {
            const auto at = static_cast<std::size_t>(i * c.n + j);
            double sum = o.accumulate ? expected[at] : 0;
            double magnitude = std::abs(sum);
            for (std::int64_t l = 0; l < c.k; ++l) {
              const double product =
                  av[static_cast<std::size_t>(o.transpose_a ? l * c.m + i : i * c.k + l)] *
                  bv[static_cast<std::size_t>(o.transpose_b ? j * c.k + l : l * c.n + j)];
              sum += product;
              magnitude += std::abs(product);
            }
            expected[at] = sum;
            magnitudes[at] = magnitude;
          }
        }
        backend.matmul(out, a, b, o);
        expect_close(backend, out, expected, magnitudes, static_cast<double>(c.k) + 2, "out");
      }
    }
  });
}

TEST(CpuMatmul, TakesTheLastAxisAsColumns) {
  const auto backend = poisoned_backend(1);
  const Tensor a = random_tensor(*backend, DType::f64, Shape{2, 3, 5}, 1);
  const Tensor b = random_tensor(*backend, DType::f64, Shape{5, 7}, 2);
  const Tensor out = backend->empty(DType::f64, Shape{2, 3, 7}, Category::activations);
  const Tensor flat = backend->empty(DType::f64, Shape{6, 7}, Category::activations);
  backend->matmul(out, a, b);
  backend->matmul(flat, a.view(Shape{6, 5}), b);
  EXPECT_EQ(backend->download_values(out), backend->download_values(flat));
}

// Small integers, whose sums are exact in f32 in any order: a product of 16-bit operands is that
// of the same numbers in f32, rounded once, wherever the borders of its tiles are.
TEST(CpuMatmul, TilesOf16BitProductsJoin) {
  const auto integers = [](Backend& backend, DType dtype, Shape shape, std::size_t step) {
    Values values(static_cast<std::size_t>(shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>(i * i * step % 7 % 5) - 2;
    }
    return tensor_of(backend, dtype, shape, values);
  };
  // Several tiles by rows and depth, by columns and depth, and, for two of the options, by both.
  for (const Product& c : {Product{530, 9, 1030}, Product{9, 1030, 1030}, Product{515, 2050, 3}}) {
    for (int options = 0; options < 8; options += c.k == 3 ? 7 : 1) {
      const MatmulOptions o{.transpose_a = (options & 1) != 0,
                            .transpose_b = (options & 2) != 0,
                            .accumulate = (options & 4) != 0};
      SCOPED_TRACE(testing::Message() << c.m << " " << c.n << " " << c.k << " options " << options);
      const auto backend = poisoned_backend(2);
      const auto product = [&](DType dtype, DType out_dtype) {
        const Tensor a =
            integers(*backend, dtype, o.transpose_a ? Shape{c.k, c.m} : Shape{c.m, c.k}, 1);
        const Tensor b =
            integers(*backend, dtype, o.transpose_b ? Shape{c.n, c.k} : Shape{c.k, c.n}, 2);
        const Tensor out = o.accumulate
                               ? integers(*backend, out_dtype, Shape{c.m, c.n}, 3)
                               : backend->empty(out_dtype, Shape{c.m, c.n}, Category::activations);
        backend->matmul(out, a, b, o);
        return out;
      };
      const Tensor expected = product(DType::f32, DType::f32);
      for (const DType dtype : {DType::bf16, DType::f16}) {
        EXPECT_EQ(backend->fingerprint(product(dtype, DType::f32)), backend->fingerprint(expected));
        const Tensor rounded = backend->empty(dtype, expected.shape(), Category::activations);
        backend->cast(rounded, expected);
        EXPECT_EQ(backend->fingerprint(product(dtype, dtype)), backend->fingerprint(rounded));
      }
    }
  }
}

TEST(CpuMatmul, WorkspaceIsGivenBack) {
  const auto backend = poisoned_backend(1);
  const Tensor a = random_tensor(*backend, DType::bf16, Shape{8, 8}, 1);
  const Tensor out = backend->empty(DType::bf16, Shape{8, 8}, Category::activations);
  backend->matmul(out, a, a);
  const Ledger ledger = backend->device().ledger();
  EXPECT_EQ(ledger.held_in(Category::workspace), Bytes(0));
  EXPECT_EQ(ledger.peak_in(Category::workspace), Bytes(3 * 64 * 4)) << "a, b and out in f32";
}

TEST(CpuMatmul, WorkspaceIsForTilesNotForOperands) {
  const auto backend = poisoned_backend(1);
  const Tensor a = backend->zeros(DType::bf16, Shape{600, 1600}, Category::activations);
  const Tensor b = backend->zeros(DType::bf16, Shape{1600, 700}, Category::activations);
  const Tensor out = backend->zeros(DType::f32, Shape{600, 700}, Category::gradients);
  backend->matmul(out, a, b);
  EXPECT_EQ(backend->device().ledger().peak_in(Category::workspace),
            Bytes((512 * 534 + 534 * 700) * 4));
}

TEST(CpuRows, FillRowsAndSumRows) {
  for_each_gradient_configuration([](Backend& backend, DType dtype, DType sum_dtype) {
    for (const Product& c : {Product{0, 3, 0}, Product{3, 0, 0}, Product{1, 1, 0}, Product{3, 7, 0},
                             Product{129, 1031, 0}, Product{6, 2500, 0}}) {
      const Tensor bias = random_tensor(backend, dtype, Shape{c.n}, 1);
      const Values bias_values = backend.download_values(bias);
      const Tensor filled = backend.empty(dtype, Shape{c.m, c.n}, Category::activations);
      backend.fill_rows(filled, bias);
      Values repeated;
      for (std::int64_t row = 0; row < c.m; ++row) {
        repeated.insert(repeated.end(), bias_values.begin(), bias_values.end());
      }
      ASSERT_EQ(backend.download_values(filled), repeated);

      const Tensor x = random_tensor(backend, dtype, Shape{c.m, c.n}, 2);
      const Values xv = backend.download_values(x);
      const Tensor sums = tensor_of(backend, sum_dtype, Shape{c.n}, bias_values);
      Values expected = bias_values;
      Values magnitudes(expected.size());
      for (std::size_t i = 0; i < xv.size(); ++i) {
        const std::size_t column = i % expected.size();
        expected[column] += xv[i];
        magnitudes[column] += std::abs(xv[i]);
      }
      for (std::size_t column = 0; column < expected.size(); ++column) {
        magnitudes[column] += std::abs(bias_values[column]);
      }
      backend.sum_rows(sums, x);
      expect_close(backend, sums, expected, magnitudes, static_cast<double>(c.m) + 1, "sum_rows");
    }
  });
}

TEST(CpuMatmul, Misfits) {
  const auto backend = poisoned_backend(1);
  const auto f32 = [&](std::int64_t rows, std::int64_t columns) {
    return backend->zeros(DType::f32, Shape{rows, columns}, Category::activations);
  };
  const Tensor wide = backend->zeros(DType::f64, Shape{3, 4}, Category::activations);
  EXPECT_THROW(backend->matmul(f32(2, 4), f32(2, 3), f32(4, 4)), std::invalid_argument);
  EXPECT_THROW(backend->matmul(f32(2, 5), f32(2, 3), f32(3, 4)), std::invalid_argument);
  EXPECT_THROW(backend->matmul(f32(3, 4), f32(2, 3), f32(3, 4)), std::invalid_argument);
  EXPECT_THROW(backend->matmul(f32(2, 4), f32(2, 3), wide), std::invalid_argument);
  EXPECT_THROW(backend->matmul(f32(2, 4), f32(2, 3), f32(3, 4), {.transpose_b = true}),
               std::invalid_argument);
  EXPECT_THROW(backend->matmul(f32(2, 4), Tensor(), f32(3, 4)), std::invalid_argument);
  EXPECT_THROW(backend->fill_rows(f32(2, 4), f32(1, 3)), std::invalid_argument);
  EXPECT_THROW(backend->sum_rows(f32(1, 3), f32(2, 4)), std::invalid_argument);
  EXPECT_THROW(backend->sum_rows(f32(1, 4), wide), std::invalid_argument);
  EXPECT_THROW(backend->matmul(wide, f32(3, 3), f32(3, 4)), std::invalid_argument);
  const Tensor narrow = backend->zeros(DType::bf16, Shape{3, 4}, Category::activations);
  EXPECT_THROW(backend->matmul(narrow, f32(3, 3), f32(3, 4)), std::invalid_argument);
  EXPECT_THROW(backend->sum_rows(narrow.rows(0, 1), f32(3, 4)), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
