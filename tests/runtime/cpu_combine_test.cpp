#include <algorithm>
#include <limits>

#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

constexpr std::int64_t counts[] = {0, 1, 3, 7, 65, 130, 49999};
const double nan_value = std::numeric_limits<double>::quiet_NaN();

double combined(double a, double b, ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return std::isnan(a) || std::isnan(b) ? nan_value : std::min(a, b);
    case ReduceOp::max:
      return std::isnan(a) || std::isnan(b) ? nan_value : std::max(a, b);
    default:
      return a + b;
  }
}

// Whole numbers that every dtype holds, as it does their sums.
Values small_numbers(std::int64_t n, std::uint32_t stream) {
  Values values;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = random_bits({.seed = 3, .stream = stream}, static_cast<std::uint64_t>(i));
    values.push_back(static_cast<double>(bits % 121) - 60);
  }
  return values;
}

// body(backend, op, a, b, the values of a (op) b) for every backend, dtype, operation and count.
template <typename Body>
void for_each_combination(const Body& body) {
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : all_dtypes) {
      for (const ReduceOp op : all_reduce_ops) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::string(name_of(op)));
        for (const std::int64_t n : counts) {
          const Values a = small_numbers(n, 1);
          const Values b = small_numbers(n, 2);
          Values expected(a.size());
          std::transform(a.begin(), a.end(), b.begin(), expected.begin(),
                         [&](double x, double y) { return combined(x, y, op); });
          body(backend, op, tensor_of(backend, dtype, Shape{n}, a),
               tensor_of(backend, dtype, Shape{n}, b), expected);
        }
      }
    }
  });
}

TEST(CpuCombine, EveryOperationOnEveryDtypeIsExactWhereTheFormatIs) {
  for_each_combination(
      [](Backend& backend, ReduceOp op, const Tensor& a, const Tensor& b, const Values& expected) {
        backend.combine(a, b, op);
        ASSERT_EQ(backend.download_values(a), expected);
      });
}

// Whatever the alignment, and to where one of the two is.
TEST(CpuCombine, ToAThirdTensorAndPastTheCaches) {
  for_each_combination(
      [](Backend& backend, ReduceOp op, const Tensor& a, const Tensor& b, const Values& expected) {
        const std::int64_t n = a.elements();
        const Tensor whole = backend.empty(a.dtype(), Shape{n + 7}, Category::workspace);
        for (const std::int64_t shift : {0, 1, 5}) {
          const Tensor out = whole.slice(shift, n);
          for (const bool passing : {false, true}) {
            backend.fill(whole, 9);
            backend.combine(out, a, b, op, passing);
            ASSERT_EQ(backend.download_values(out), expected);
            const Values around = backend.download_values(whole);
            ASSERT_EQ(std::count(around.begin(), around.begin() + shift, 9), shift);
            ASSERT_EQ(std::count(around.end() - (7 - shift), around.end(), 9), 7 - shift);
          }
        }
        backend.combine(b, a, b, op);
        ASSERT_EQ(backend.download_values(b), expected);
      });
}

TEST(CpuCopy, PastTheCachesWhateverTheAlignment) {
  for_each_backend([](Backend& backend) {
    const std::int64_t n = (1 << 20) + 77;
    const Tensor x = backend.empty(DType::i8, Shape{n + 3}, Category::workspace);
    std::vector<std::byte> bytes(static_cast<std::size_t>(n + 3));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(i * i >> 7);
    }
    backend.upload(x, bytes);
    const Tensor whole = backend.empty(DType::i8, Shape{n + 140}, Category::workspace);
    for (const std::int64_t shift : {0, 1, 63, 64, 70}) {
      backend.fill(whole, 9);
      backend.copy(whole.slice(shift, n), x.slice(3, n), /*passing=*/true);
      std::vector<std::byte> copied(static_cast<std::size_t>(n + 140));
      backend.download(copied, whole);
      ASSERT_TRUE(std::equal(bytes.begin() + 3, bytes.end(), copied.begin() + shift)) << shift;
      ASSERT_EQ(std::count(copied.begin(), copied.begin() + shift, std::byte{9}), shift);
      ASSERT_EQ(std::count(copied.begin() + shift + n, copied.end(), std::byte{9}), 140 - shift);
    }
  });
}

TEST(CpuCombine, SumsOfFloatsAreRoundedOnce) {
  for_each_configuration([](Backend& backend, DType dtype) {
    const Tensor a = random_tensor(backend, dtype, Shape{1009}, 1);
    const Tensor b = random_tensor(backend, dtype, Shape{1009}, 2);
    Values expected = backend.download_values(a);
    const Values addend = backend.download_values(b);
    std::transform(expected.begin(), expected.end(), addend.begin(), expected.begin(),
                   std::plus<>());
    backend.combine(a, b, ReduceOp::avg);
    expect_close(backend, a, expected, expected, 1, "sum");
  });
}

TEST(CpuCombine, NaNPassesOnFromEitherSide) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const ReduceOp op : all_reduce_ops) {
      for (const std::int64_t n : {3, 67}) {
        Values a(static_cast<std::size_t>(n), 1.0);
        Values b(static_cast<std::size_t>(n), 2.0);
        a[0] = nan_value;
        b[1] = nan_value;
        a.back() = b.back() = nan_value;
        const Tensor out = tensor_of(backend, dtype, Shape{n}, a);
        backend.combine(out, tensor_of(backend, dtype, Shape{n}, b), op);
        const Values result = backend.download_values(out);
        for (std::size_t i = 0; i < result.size(); ++i) {
          const double expected = combined(a[i], b[i], op);
          EXPECT_TRUE(result[i] == expected || (std::isnan(result[i]) && std::isnan(expected)))
              << name_of(op) << " of " << a[i] << " and " << b[i] << ": " << result[i];
        }
      }
    }
  });
}

template <typename T>
std::vector<T> download_integers(Backend& backend, const Tensor& x) {
  std::vector<T> host(static_cast<std::size_t>(x.elements()));
  backend.download(std::as_writable_bytes(std::span(host)), x);
  return host;
}

// Largest, smallest and neighbours, in enough copies to fill vectors and leave a remainder.
template <typename T>
Tensor limits(Backend& backend, DType dtype, T first, T second) {
  std::vector<T> host;
  for (int i = 0; i < 33; ++i) {
    host.push_back(first);
    host.push_back(second);
  }
  const Tensor x = backend.empty(dtype, Shape{66}, Category::activations);
  backend.upload(x, std::as_bytes(std::span(host)));
  return x;
}

template <typename T>
void expect_wrapping(Backend& backend, DType dtype) {
  SCOPED_TRACE(std::string(name_of(dtype)));
  constexpr T largest = std::numeric_limits<T>::max();
  constexpr T smallest = std::numeric_limits<T>::min();
  const Tensor x = limits<T>(backend, dtype, largest, smallest);
  backend.combine(x, limits<T>(backend, dtype, T{2}, T{-1}), ReduceOp::sum);
  const std::vector<T> sums = download_integers<T>(backend, x);
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    EXPECT_EQ(sums[i], static_cast<T>(smallest + 1));
    EXPECT_EQ(sums[i + 1], largest);
  }
  const Tensor y = limits<T>(backend, dtype, largest, smallest);
  backend.combine(y, limits<T>(backend, dtype, smallest, largest), ReduceOp::max);
  EXPECT_EQ(download_integers<T>(backend, y), std::vector<T>(66, largest));
  const Tensor z = limits<T>(backend, dtype, largest, smallest);
  backend.divide(z, -1);
  const std::vector<T> negated = download_integers<T>(backend, z);
  EXPECT_EQ(negated[0], static_cast<T>(-largest));
  EXPECT_EQ(negated[1], smallest) << "wraps";
}

TEST(CpuCombine, IntegersWrap) {
  for_each_backend([](Backend& backend) {
    expect_wrapping<std::int64_t>(backend, DType::i64);
    expect_wrapping<std::int32_t>(backend, DType::i32);
    expect_wrapping<std::int8_t>(backend, DType::i8);
  });
}

TEST(CpuDivide, IntegersTruncateTowardsZeroAndFloatsAreRoundedOnce) {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : all_dtypes) {
      SCOPED_TRACE(std::string(name_of(dtype)));
      for (const std::int64_t n : counts) {
        for (const std::int64_t divisor : {1, 3, -7, 1000}) {
          Values expected = small_numbers(n, 1);
          const Tensor x = tensor_of(backend, dtype, Shape{n}, expected);
          backend.divide(x, divisor);
          for (double& value : expected) {
            value /= static_cast<double>(divisor);
            value = is_floating(dtype) ? value : std::trunc(value) + 0.0;
          }
          // Quotients of small whole numbers are the same rounded once or by way of f32.
          const Tensor rounded = tensor_of(backend, dtype, Shape{n}, expected);
          ASSERT_EQ(backend.download_values(x), backend.download_values(rounded)) << divisor;
        }
      }
    }
  });
}

TEST(CpuCombine, Misfits) {
  const auto backend = poisoned_backend(1);
  const Tensor a = backend->zeros(DType::f32, Shape{4}, Category::activations);
  const Tensor shorter = backend->zeros(DType::f32, Shape{3}, Category::activations);
  const Tensor other = backend->zeros(DType::i32, Shape{4}, Category::activations);
  EXPECT_THROW(backend->combine(a, shorter, ReduceOp::sum), std::invalid_argument);
  EXPECT_THROW(backend->combine(a, other, ReduceOp::sum), std::invalid_argument);
  EXPECT_THROW(backend->combine(a, Tensor(), ReduceOp::sum), std::invalid_argument);
  EXPECT_THROW(backend->divide(a, 0), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
