#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

constexpr std::int64_t sizes[] = {0, 1, 7, 65, 49999};

TEST(CpuAdamW, MatchesTheFormulaOverSeveralSteps) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const std::int64_t n : sizes) {
      const Shape shape{n};
      const Tensor p = random_tensor(backend, dtype, shape, 1);
      const Tensor m = backend.zeros(dtype, shape, Category::optimizer);
      const Tensor v = backend.zeros(dtype, shape, Category::optimizer);
      AdamWStep step{.learning_rate = 0.01,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .epsilon = 1e-6,
                     .weight_decay = 0.1,
                     .gradient_scale = 0.5};
      for (step.step = 1; step.step <= 3; ++step.step) {
        // Each step is held against the formula on what the tensors held before it.
        Values pv = backend.download_values(p);
        Values mv = backend.download_values(m);
        Values vv = backend.download_values(v);
        Values p_magnitude(pv.size());
        Values m_magnitude(pv.size());
        const Tensor g =
            random_tensor(backend, dtype, shape, static_cast<std::uint32_t>(step.step));
        const Values gv = backend.download_values(g);
        const auto t = static_cast<double>(step.step);
        for (std::size_t i = 0; i < pv.size(); ++i) {
          const double gradient = step.gradient_scale * gv[i];
          m_magnitude[i] = std::abs(mv[i]) + std::abs(gradient);
          mv[i] = step.beta1 * mv[i] + (1 - step.beta1) * gradient;
          vv[i] = step.beta2 * vv[i] + (1 - step.beta2) * gradient * gradient;
          const double m_hat = mv[i] / (1 - std::pow(step.beta1, t));
          const double v_hat = vv[i] / (1 - std::pow(step.beta2, t));
          const double deviation = std::sqrt(v_hat) + step.epsilon;
          pv[i] -= step.learning_rate * step.weight_decay * pv[i];
          pv[i] -= step.learning_rate * m_hat / deviation;
          // What an error of the first moment, which may cancel, becomes in the update.
          p_magnitude[i] = std::abs(pv[i]) + step.learning_rate * m_magnitude[i] /
                                                 (1 - std::pow(step.beta1, t)) / deviation;
        }
        backend.adamw(p, m, v, g, step);
        expect_close(backend, m, mv, m_magnitude, 4, "first moment");
        expect_close(backend, v, vv, vv, 6, "second moment");
        expect_close(backend, p, pv, p_magnitude, 16, "parameter");
      }
    }
  });
}

TEST(CpuAdamW, FirstStepByHand) {
  for_each_backend([](Backend& backend) {
    const Tensor p = tensor_of(backend, DType::f64, Shape{1}, {1});
    const Tensor g = tensor_of(backend, DType::f64, Shape{1}, {1});
    const Tensor m = backend.zeros(DType::f64, Shape{1}, Category::optimizer);
    const Tensor v = backend.zeros(DType::f64, Shape{1}, Category::optimizer);
    backend.adamw(p, m, v, g, {.learning_rate = 0.1, .weight_decay = 0.1});
    // 1 - 0.1 * 0.1 * 1 - 0.1 * 1 / (1 + 1e-8)
    EXPECT_NEAR(backend.download_values(p)[0], 0.890000001, 1e-15);
    EXPECT_NEAR(backend.download_values(p)[0], 1 - 0.01 - 0.1 / (1 + 1e-8), 4e-16);
  });
}

// A parameter's update has the same bits in whatever shard it lies: ZeRO relies on it.
TEST(CpuAdamW, BitsDoNotDependOnTheShard) {
  for_each_configuration([](Backend& backend, DType dtype) {
    const std::int64_t n = 211;
    const AdamWStep step{.learning_rate = 0.01, .weight_decay = 0.1, .step = 5};
    const auto fresh = [&](std::uint32_t stream) {
      return random_tensor(backend, dtype, Shape{n}, stream, 0.1);
    };
    const Tensor g = fresh(1);
    const Tensor v = backend.empty(dtype, Shape{n}, Category::optimizer);
    backend.fill(v, 0.25);
    const Tensor whole_p = fresh(2);
    const Tensor whole_m = fresh(3);
    backend.adamw(whole_p, whole_m, v, g, step);
    const Tensor p = fresh(2);
    const Tensor m = fresh(3);
    backend.fill(v, 0.25);
    for (std::int64_t first = 0, count = 1; first < n; first += count, ++count) {
      count = std::min(count, n - first);
      const auto shard = [&](const Tensor& x) { return x.slice(first, count); };
      backend.adamw(shard(p), shard(m), shard(v), shard(g), step);
    }
    EXPECT_EQ(backend.download_values(p), backend.download_values(whole_p));
    EXPECT_EQ(backend.download_values(m), backend.download_values(whole_m));
  });
}

TEST(CpuSgd, WithAndWithoutMomentum) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const std::int64_t n : sizes) {
      for (const double momentum : {0.0, 0.9}) {
        const Shape shape{n};
        const Tensor p = random_tensor(backend, dtype, shape, 1);
        const Tensor velocity = momentum == 0 ? Tensor() : random_tensor(backend, dtype, shape, 2);
        const Tensor g = random_tensor(backend, dtype, shape, 3);
        Values pv = backend.download_values(p);
        const Values gv = backend.download_values(g);
        Values vv = momentum == 0 ? Values(gv.size()) : backend.download_values(velocity);
        Values v_magnitude(gv.size());
        Values p_magnitude(gv.size());
        const SgdStep step{.learning_rate = 0.1,
                           .momentum = momentum,
                           .weight_decay = 0.01,
                           .gradient_scale = 0.3};
        for (std::size_t i = 0; i < pv.size(); ++i) {
          v_magnitude[i] = std::abs(vv[i]) + std::abs(gv[i]);
          p_magnitude[i] = std::abs(pv[i]) + v_magnitude[i];
          vv[i] = momentum * vv[i] + step.gradient_scale * gv[i];
          pv[i] -= step.learning_rate * step.weight_decay * pv[i];
          pv[i] -= step.learning_rate * vv[i];
        }
        backend.sgd(p, velocity, g, step);
        expect_close(backend, p, pv, p_magnitude, 8, "parameter");
        if (momentum != 0) {
          expect_close(backend, velocity, vv, v_magnitude, 4, "velocity");
        }
      }
    }
  });
}

TEST(CpuOptimizers, Misfits) {
  const auto backend = poisoned_backend(1);
  const Tensor a = backend->zeros(DType::f32, Shape{4}, Category::parameters);
  const Tensor shorter = backend->zeros(DType::f32, Shape{3}, Category::parameters);
  const Tensor wide = backend->zeros(DType::f64, Shape{4}, Category::parameters);
  EXPECT_THROW(backend->adamw(a, a, shorter, a, {}), std::invalid_argument);
  EXPECT_THROW(backend->adamw(a, wide, a, a, {}), std::invalid_argument);
  EXPECT_THROW(backend->adamw(a, a, a, a, {.step = 0}), std::invalid_argument);
  EXPECT_THROW(backend->sgd(a, Tensor(), a, {.momentum = 0.9}), std::invalid_argument);
  EXPECT_THROW(backend->sgd(a, shorter, a, {}), std::invalid_argument);
  EXPECT_THROW(backend->sgd(a, a, wide, {}), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
