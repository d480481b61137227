#include "training/optimizer.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

// Two parameters of which one takes decay, as shards of a device.
class OptimizerTest : public ::testing::TestWithParam<DType> {
 protected:
  OptimizerTest() {
    decayed_.name = "weight";
    plain_.name = "bias";
    plain_.decay = false;
    for (const Parameter* parameter : {&decayed_, &plain_}) {
      Shard shard{parameter, 0, backend_->zeros(GetParam(), {2}, Category::parameters),
                  backend_->zeros(GetParam(), {2}, Category::gradients)};
      shards_.push_back(shard);
    }
  }

  void set(const Tensor& tensor, double a, double b) {
    backend_->upload_values(tensor, std::vector<double>{a, b});
  }
  void expect(const Tensor& tensor, double a, double b) {
    const double relative = GetParam() == DType::f64 ? 1e-14 : 4e-7;
    const auto values = backend_->download_values(tensor);
    EXPECT_NEAR(values.at(0), a, relative * std::abs(a));
    EXPECT_NEAR(values.at(1), b, relative * std::abs(b));
  }
  Bytes optimizer_bytes() const { return device_->ledger().held_in(Category::optimizer); }

  std::shared_ptr<Device> device_ = Device::create({.poison = true});
  std::unique_ptr<Backend> backend_ = make_cpu_backend(device_, 1);
  Parameter decayed_;
  Parameter plain_;
  std::vector<Shard> shards_;
};

INSTANTIATE_TEST_SUITE_P(DTypes, OptimizerTest, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// One element's AdamW, straight from the paper's algorithm 2.
struct ScalarAdamW {
  double p, m = 0, v = 0;
  void step(const OptimizerOptions& o, double learning_rate, double g, double decay, int t) {
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t));
    const double v_hat = v / (1 - std::pow(o.beta2, t));
    p -= learning_rate * (m_hat / (std::sqrt(v_hat) + o.epsilon) + decay * p);
  }
};

TEST_P(OptimizerTest, AdamWFollowsItsAlgorithmAndDecaysOnlyWhatDecays) {
  const OptimizerOptions options{.weight_decay = 0.1};
  const auto optimizer = make_optimizer(options, shards_, *backend_);
  ScalarAdamW reference[2][2] = {{{1}, {-2}}, {{1}, {-2}}};
  for (Shard& shard : shards_)
    set(shard.value, 1, -2);
  for (int t = 1; t <= 3; ++t) {
    const double gradient[2] = {0.5 * t, -3.0 + t};
    for (Shard& shard : shards_)
      set(shard.gradient, gradient[0], gradient[1]);
    const double learning_rate = 0.1 / t;
    optimizer->step(learning_rate, 0.5);
    for (std::size_t s = 0; s < 2; ++s) {
      for (std::size_t i = 0; i < 2; ++i) {
        reference[s][i].step(options, learning_rate, 0.5 * gradient[i], s == 0 ? 0.1 : 0, t);
      }
      expect(shards_[s].value, reference[s][0].p, reference[s][1].p);
      expect(shards_[s].gradient, gradient[0], gradient[1]);  // untouched
    }
  }
}

TEST_P(OptimizerTest, SgdFollowsItsAlgorithmAndDecaysOnlyWhatDecays) {
  const auto optimizer = make_optimizer(
      {.kind = OptimizerKind::sgd, .momentum = 0.5, .weight_decay = 0.25}, shards_, *backend_);
  for (Shard& shard : shards_) {
    set(shard.value, 1, 2);
    set(shard.gradient, 4, -8);
  }
  optimizer->step(0.125, 0.5);  // v = (2, -4); decay takes 0.125 * 0.25 of p first
  expect(shards_[0].value, 1 - 0.03125 - 0.25, 2 - 0.0625 + 0.5);
  expect(shards_[1].value, 1 - 0.25, 2 + 0.5);
  optimizer->step(0.125, 0.5);  // v = (3, -6)
  expect(shards_[1].value, 1 - 0.25 - 0.375, 2 + 0.5 + 0.75);
}

TEST_P(OptimizerTest, StateIsChargedToTheOptimizerInTheParametersDtype) {
  const Bytes values = shards_[0].value.bytes() + shards_[1].value.bytes();
  {
    const auto adamw = make_optimizer({}, shards_, *backend_);
    EXPECT_EQ(optimizer_bytes(), 2 * values);
  }
  EXPECT_EQ(optimizer_bytes(), Bytes(0));
  {
    const auto sgd = make_optimizer({.kind = OptimizerKind::sgd}, shards_, *backend_);
    EXPECT_EQ(optimizer_bytes(), values);
  }
  const auto plain =
      make_optimizer({.kind = OptimizerKind::sgd, .momentum = 0}, shards_, *backend_);
  EXPECT_EQ(optimizer_bytes(), Bytes(0));
  set(shards_[1].gradient, 1, -1);
  plain->step(0.5);
  expect(shards_[1].value, -0.5, 0.5);
}

// Mixed precision: the value is rounded from an f32 master, which is what is updated.
TEST(MasterWeights, GatherUpdatesThatAreTooSmallForTheValue) {
  const auto backend = make_cpu_backend(Device::create({.poison = true}), 1);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const OptimizerKind kind : all_optimizer_kinds) {
      Parameter parameter;
      parameter.decay = false;
      const std::vector<Shard> shards{{&parameter, 0,
                                       backend->empty(dtype, {2}, Category::parameters),
                                       backend->empty(DType::f32, {2}, Category::gradients)}};
      backend->upload_values(shards[0].value, std::vector<double>{1, -1});
      backend->upload_values(shards[0].gradient, std::vector<double>{1, 1});
      const Bytes before = backend->device().ledger().held_in(Category::optimizer);
      const auto optimizer = make_optimizer({.kind = kind, .momentum = 0}, shards, *backend);
      // Master and, for AdamW, two moments; 4 bytes each.
      EXPECT_EQ(backend->device().ledger().held_in(Category::optimizer) - before,
                Bytes(kind == OptimizerKind::adamw ? 24 : 8));
      // AdamW's steps, too, are the learning rate as long as the gradient does not change.
      // 16 steps of 2^-14 are 2^-10, of which one alone changes neither format at 1.
      for (int step = 0; step < 16; ++step) {
        optimizer->step(0x1p-14);
      }
      const double up = dtype == DType::f16 ? 1 - 0x1p-10 : 1;
      const double down = dtype == DType::f16 ? -1 - 0x1p-10 : -1;
      EXPECT_EQ(backend->download_values(shards[0].value), (std::vector<double>{up, down}));
      for (int step = 16; step < 128; ++step) {
        optimizer->step(0x1p-14);
      }
      EXPECT_EQ(backend->download_values(shards[0].value),
                (std::vector<double>{1 - 0x1p-7, -1 - 0x1p-7}));
    }
  }
}

TEST(ClipScale, ScalesToTheNormAsPyTorchDoes) {
  EXPECT_NEAR(clip_scale(5, 1), 0.19999996, 1e-10);
  EXPECT_EQ(clip_scale(5, 1), 1 / (5 + 1e-6));
  EXPECT_EQ(clip_scale(0.5, 1), 1);
  EXPECT_EQ(clip_scale(0, 1), 1);
  EXPECT_EQ(clip_scale(5, 0), 1);  // off
}

}  // namespace
}  // namespace ringworld
