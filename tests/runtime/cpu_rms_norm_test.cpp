#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

struct Rows {
  std::int64_t rows, width;
};
constexpr Rows row_sizes[] = {{0, 4}, {1, 1}, {3, 7}, {5, 65}, {2, 768}, {67, 1031}};

double inverse_rms_of(const Values& x, std::int64_t row, std::int64_t width) {
  double squares = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    squares += x[at(row, i, width)] * x[at(row, i, width)];
  }
  return 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
}

Values magnitudes_of(Values x) {
  for (double& value : x) {
    value = std::abs(value);
  }
  return x;
}

TEST(CpuRmsNorm, ForwardAndBackward) {
  for_each_gradient_configuration([](Backend& backend, DType dtype, DType gradient) {
    for (const Rows& c : row_sizes) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width);
      const Shape shape{c.rows, c.width};
      const Tensor x = random_tensor(backend, dtype, shape, 1);
      const Tensor weight = random_tensor(backend, dtype, Shape{c.width}, 2);
      const Values xv = backend.download_values(x);
      const Values wv = backend.download_values(weight);
      const Tensor y = backend.empty(dtype, shape, Category::activations);
      const Tensor inverse = backend.empty(wide_dtype(dtype), Shape{c.rows}, Category::activations);
      backend.rms_norm_forward(y, inverse, x, weight, epsilon);

      const Tensor dy = random_tensor(backend, dtype, shape, 3);
      const Tensor dx = random_tensor(backend, dtype, shape, 4);
      const Tensor dweight = random_tensor(backend, gradient, Shape{c.width}, 5);
      const Values dyv = backend.download_values(dy);
      Values dx_expected = backend.download_values(dx);
      Values dw_expected = backend.download_values(dweight);
      Values dx_magnitude = magnitudes_of(dx_expected);
      Values dw_magnitude = magnitudes_of(dw_expected);
      Values y_expected, inverses;
      for (std::int64_t row = 0; row < c.rows; ++row) {
        const double inverse_rms = inverse_rms_of(xv, row, c.width);
        inverses.push_back(inverse_rms);
        double mean_gn = 0, mean_magnitude = 0;
        for (std::int64_t i = 0; i < c.width; ++i) {
          const double normal = xv[at(row, i, c.width)] * inverse_rms;
          const double gn = dyv[at(row, i, c.width)] * wv[static_cast<std::size_t>(i)] * normal;
          mean_gn += gn / static_cast<double>(c.width);
          mean_magnitude += std::abs(gn) / static_cast<double>(c.width);
        }
        for (std::int64_t i = 0; i < c.width; ++i) {
          const auto column = static_cast<std::size_t>(i);
          const std::size_t element = at(row, i, c.width);
          const double normal = xv[element] * inverse_rms;
          const double g = dyv[element] * wv[column];
          y_expected.push_back(normal * wv[column]);
          dx_expected[element] += inverse_rms * (g - normal * mean_gn);
          dx_magnitude[element] += inverse_rms * (std::abs(g) + std::abs(normal) * mean_magnitude);
          dw_expected[column] += dyv[element] * normal;
          dw_magnitude[column] += std::abs(dyv[element] * normal);
        }
      }
      // A sum of squares of n elements is n roundings off at most, its root half as many.
      const auto roundings = static_cast<double>(c.width) + 16;
      expect_close(backend, y, y_expected, y_expected, roundings, "y");
      expect_close(backend, inverse, inverses, inverses, roundings, "inverse rms");
      backend.rms_norm_backward(dx, dweight, dy, x, weight, inverse);
      expect_close(backend, dx, dx_expected, dx_magnitude, 3 * roundings, "dx");
      expect_close(backend, dweight, dw_expected, dw_magnitude,
                   roundings + static_cast<double>(c.rows), "dweight");
    }
  });
}

TEST(CpuRmsNorm, BackwardIsTheDerivativeOfForward) {
  const auto backend = poisoned_backend(1);
  const Shape shape{3, 5};
  const Values x = backend->download_values(random_tensor(*backend, DType::f64, shape, 1));
  const Values weight = backend->download_values(random_tensor(*backend, DType::f64, Shape{5}, 2));
  const Values dy = backend->download_values(random_tensor(*backend, DType::f64, shape, 3));
  const auto of = [&](Shape s, const Values& v) { return tensor_of(*backend, DType::f64, s, v); };
  const Tensor inverse = backend->empty(DType::f64, Shape{3}, Category::activations);
  const auto loss = [&](const Values& xs, const Values& ws) {
    const Tensor y = backend->empty(DType::f64, shape, Category::activations);
    backend->rms_norm_forward(y, inverse, of(shape, xs), of(Shape{5}, ws), epsilon);
    return dot(backend->download_values(y), dy);
  };
  loss(x, weight);
  const Tensor dx = backend->zeros(DType::f64, shape, Category::gradients);
  const Tensor dweight = backend->zeros(DType::f64, Shape{5}, Category::gradients);
  backend->rms_norm_backward(dx, dweight, of(shape, dy), of(shape, x), of(Shape{5}, weight),
                             inverse);
  const Values dxv = backend->download_values(dx);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto f = [&](const Values& v) { return loss(v, weight); };
    EXPECT_NEAR(dxv[i], central_difference(f, x, i), 1e-7);
  }
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const auto f = [&](const Values& v) { return loss(x, v); };
    EXPECT_NEAR(backend->download_values(dweight)[i], central_difference(f, weight, i), 1e-7);
  }
}

TEST(CpuRmsNorm, ARowOfZerosStaysZeroAndNaNShows) {
  for_each_backend([](Backend& backend) {
    const Tensor x = tensor_of(backend, DType::f32, Shape{2, 3}, {0, 0, 0, 1, std::nan(""), 2});
    const Tensor y = backend.empty(DType::f32, Shape{2, 3}, Category::activations);
    const Tensor inverse = backend.empty(DType::f32, Shape{2}, Category::activations);
    backend.rms_norm_forward(y, inverse, x, tensor_of(backend, DType::f32, Shape{3}, {1, 2, 3}),
                             epsilon);
    const Values values = backend.download_values(y);
    EXPECT_EQ(Values(values.begin(), values.begin() + 3), Values(3, 0.0));
    EXPECT_TRUE(std::isnan(values[3]));
  });
}

TEST(CpuRmsNorm, Misfits) {
  const auto backend = poisoned_backend(1);
  const auto f32 = [&](Shape shape) {
    return backend->zeros(DType::f32, shape, Category::activations);
  };
  const Tensor x = f32(Shape{2, 3});
  const Tensor c = f32(Shape{3});
  const Tensor rows = f32(Shape{2});
  const Tensor wide = backend->zeros(DType::f64, Shape{2}, Category::activations);
  EXPECT_THROW(backend->rms_norm_forward(x, rows, x, rows, 1e-5), std::invalid_argument);
  EXPECT_THROW(backend->rms_norm_forward(x, c, x, c, 1e-5), std::invalid_argument);
  EXPECT_THROW(backend->rms_norm_forward(x, wide, x, c, 1e-5), std::invalid_argument);
  EXPECT_THROW(backend->rms_norm_backward(x, rows, x, x, c, rows), std::invalid_argument);
  EXPECT_THROW(backend->rms_norm_backward(x, wide, x, x, c, rows), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
