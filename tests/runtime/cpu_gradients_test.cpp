// Gradients of parameters gather over many micro-batches, which a 16-bit accumulator cannot do: in
// bf16 256 + 1 is 256.
#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

constexpr int micro_batches = 512;
constexpr DType narrow_dtypes[] = {DType::bf16, DType::f16};

// What 512 calls of `add_one(gradient)` make of a gradient (1, 3) that starts at zero.
Values accumulated(Backend& backend, DType dtype,
                   const std::function<void(const Tensor&)>& add_one) {
  const Tensor gradient = backend.zeros(dtype, Shape{1, 3}, Category::gradients);
  for (int i = 0; i < micro_batches; ++i) {
    add_one(gradient);
  }
  return backend.download_values(gradient);
}

// body(dtype, add_one) for each verb that adds to a parameter's gradient; one call of add_one adds
// 1 to each element. It takes a gradient of either dtype.
void for_each_gradient_verb(
    Backend& backend,
    const std::function<void(DType, const std::function<void(const Tensor&)>&)>& body) {
  for (const DType dtype : narrow_dtypes) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    const auto filled = [&](DType type, Shape shape, double value) {
      const Tensor x = backend.empty(type, shape, Category::activations);
      backend.fill(x, value);
      return x;
    };
    const Tensor one = filled(dtype, Shape{1, 1}, 1);
    const Tensor row = filled(dtype, Shape{1, 3}, 1);
    const Tensor zero = filled(dtype, Shape{1, 3}, 0);
    const Tensor token = filled(DType::i32, Shape{1, 1}, 0);
    const Tensor dy = row.view(Shape{1, 1, 3});
    const Tensor mean = filled(DType::f32, Shape{1}, -1);  // so that a zero counts as 1
    const Tensor inverse_deviation = filled(DType::f32, Shape{1}, 1);
    const auto layer_norm = [&](const Tensor& dweight, const Tensor& dbias) {
      backend.layer_norm_backward(filled(dtype, Shape{1, 3}, 0), dweight, dbias, row, zero, row,
                                  mean, inverse_deviation);
    };
    const Tensor inverse_rms = filled(DType::f32, Shape{1}, 1);
    const auto unused = [&](const Tensor& gradient) {
      return filled(gradient.dtype(), Shape{1, 3}, 0);
    };
    body(dtype, [&](const Tensor& g) { backend.matmul(g, one, row, {.accumulate = true}); });
    body(dtype, [&](const Tensor& g) { backend.sum_rows(g, row); });
    body(dtype, [&](const Tensor& g) { backend.embedding_backward(g, Tensor(), dy, token); });
    body(dtype, [&](const Tensor& g) { backend.embedding_backward(Tensor(), g, dy, token); });
    body(dtype, [&](const Tensor& g) { layer_norm(g, unused(g)); });
    body(dtype, [&](const Tensor& g) { layer_norm(unused(g), g); });
    body(dtype, [&](const Tensor& g) {
      backend.rms_norm_backward(filled(dtype, Shape{1, 3}, 0), g, row, row, row, inverse_rms);
    });
  }
}

TEST(CpuGradients, OfManyMicroBatchesAddUpInTheWideDtype) {
  for_each_backend([](Backend& backend) {
    for_each_gradient_verb(backend, [&](DType dtype, const auto& add_one) {
      EXPECT_EQ(accumulated(backend, gradient_dtype(dtype), add_one), Values(3, micro_batches));
    });
  });
}

// The control: the same calls on accumulators of the inputs' own dtype.
TEST(CpuGradients, StopGrowingInBf16) {
  for_each_backend([](Backend& backend) {
    for_each_gradient_verb(backend, [&](DType dtype, const auto& add_one) {
      EXPECT_EQ(accumulated(backend, dtype, add_one),
                Values(3, dtype == DType::bf16 ? 256 : micro_batches));
    });
  });
}

}  // namespace
}  // namespace ringworld
