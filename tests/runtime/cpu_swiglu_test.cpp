#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

struct Gates {
  std::int64_t rows, width;
};
// Nothing, less than a vector, odd, and enough for three threads with a remainder.
constexpr Gates gates[] = {{0, 3}, {1, 1}, {3, 7}, {5, 65}, {53, 1009}};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(CpuSwiglu, ForwardAndBackward) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const Gates& c : gates) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width);
      const Tensor x = random_tensor(backend, dtype, Shape{c.rows, 2 * c.width}, 1, 3);
      const Tensor dy = random_tensor(backend, dtype, Shape{c.rows, c.width}, 2);
      const Values xv = backend.download_values(x);
      const Values dyv = backend.download_values(dy);
      Values y_expected, dx_expected(xv.size()), dx_magnitude(xv.size());
      for (std::int64_t row = 0; row < c.rows; ++row) {
        for (std::int64_t i = 0; i < c.width; ++i) {
          const auto gate_at = static_cast<std::size_t>(row * 2 * c.width + i);
          const std::size_t up_at = gate_at + static_cast<std::size_t>(c.width);
          const double d = dyv[static_cast<std::size_t>(row * c.width + i)];
          const double gate = xv[gate_at];
          const double s = sigmoid(gate);
          y_expected.push_back(gate * s * xv[up_at]);
          dx_expected[gate_at] = d * xv[up_at] * (s + gate * s * (1 - s));
          dx_magnitude[gate_at] = d * xv[up_at] * s * (1 + std::abs(gate * (1 - s)));
          dx_expected[up_at] = d * gate * s;
          dx_magnitude[up_at] = dx_expected[up_at];
        }
      }
      const Tensor y = backend.empty(dtype, dy.shape(), Category::activations);
      backend.swiglu_forward(y, x);
      expect_close(backend, y, y_expected, y_expected, 8, "y");
      const Tensor dx = backend.empty(dtype, x.shape(), Category::activations);
      backend.swiglu_backward(dx, dy, x);
      expect_close(backend, dx, dx_expected, dx_magnitude, 16, "dx");
      const Values apart = backend.download_values(dx);
      backend.swiglu_backward(x, dy, x);
      EXPECT_EQ(backend.download_values(x), apart) << "dx may be x";
    }
  });
}

// Large gates neither overflow nor turn into NaN.
TEST(CpuSwiglu, ExtremeArguments) {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::f64, DType::f32}) {
      const Tensor x = tensor_of(backend, dtype, Shape{1, 8},
                                 {1e30, -1e30, 0, std::nan(""),  //
                                  2, 2, 2, 2});
      const Tensor y = backend.empty(dtype, Shape{1, 4}, Category::activations);
      backend.swiglu_forward(y, x);
      const Values values = backend.download_values(y);
      EXPECT_NEAR(values[0], 2e30, 1e24);
      EXPECT_NEAR(values[1], 0, 1e-6);
      EXPECT_EQ(values[2], 0);
      EXPECT_TRUE(std::isnan(values[3]));
      const Tensor dx = backend.empty(dtype, Shape{1, 8}, Category::activations);
      backend.swiglu_backward(dx, tensor_of(backend, dtype, Shape{1, 4}, {1, 1, 1, 1}), x);
      const Values gradient = backend.download_values(dx);
      EXPECT_EQ(gradient[0], 2);
      EXPECT_NEAR(gradient[1], 0, 1e-6);
      EXPECT_EQ(gradient[2], 1);
    }
  });
}

TEST(CpuSwiglu, BackwardIsTheDerivativeOfForward) {
  const auto backend = poisoned_backend(1);
  const Shape shape{2, 6};
  const Values x = {-2.5, -0.7, 4, 0.3, 1.1, -2, 0.01, 3, -1, 1.5, -0.2, 0.6};
  const Values dy = {1, -0.5, 2, 0.3, 1.7, -1};
  const Tensor dx = backend->empty(DType::f64, shape, Category::activations);
  backend->swiglu_backward(dx, tensor_of(*backend, DType::f64, Shape{2, 3}, dy),
                           tensor_of(*backend, DType::f64, shape, x));
  const auto loss = [&](const Values& at) {
    const Tensor y = backend->empty(DType::f64, Shape{2, 3}, Category::activations);
    backend->swiglu_forward(y, tensor_of(*backend, DType::f64, shape, at));
    return dot(backend->download_values(y), dy);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(backend->download_values(dx)[i], central_difference(loss, x, i), 1e-8);
  }
}

TEST(CpuSwiglu, Misfits) {
  const auto backend = poisoned_backend(1);
  const auto f32 = [&](Shape shape) {
    return backend->zeros(DType::f32, shape, Category::activations);
  };
  EXPECT_THROW(backend->swiglu_forward(f32(Shape{2, 3}), f32(Shape{2, 3})), std::invalid_argument);
  EXPECT_THROW(backend->swiglu_forward(f32(Shape{2, 3}), f32(Shape{3, 6})), std::invalid_argument);
  EXPECT_THROW(backend->swiglu_backward(f32(Shape{2, 3}), f32(Shape{2, 3}), f32(Shape{2, 6})),
               std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
