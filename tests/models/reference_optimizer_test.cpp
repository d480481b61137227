// The optimizer verbs against torch.optim over several steps (fixtures/make_fixtures.py).
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/models/support.h"

namespace ringworld {
namespace {

struct Precision {
  DType dtype;
  double bound;  // relative error after each step
};

class ReferenceOptimizer : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    std::ifstream file(RINGWORLD_SOURCE_DIR "/tests/models/fixtures/optimizer.json");
    ASSERT_TRUE(file);
    fixture_ = nlohmann::json::parse(file);
  }

  // A tensor of values that the fixture gives in its unit.
  Tensor tensor(const std::vector<double>& integers) {
    std::vector<double> values = integers;
    for (double& value : values) {
      value /= fixture_["unit"].get<double>();
    }
    Tensor result = backend_->empty(GetParam().dtype, {std::ssize(values)}, Category::workspace);
    backend_->upload_values(result, values);
    return result;
  }

  Tensor zeros_like(const Tensor& x) {
    return backend_->zeros(x.dtype(), x.shape(), Category::optimizer);
  }

  // Runs `step(parameter, gradient, number from 1)` over the fixture's gradients.
  template <typename Step>
  void follow(const nlohmann::json& run, const Tensor& parameter, Step step) {
    ASSERT_EQ(run["gradients"].size(), 5U);
    for (std::size_t i = 0; i < run["gradients"].size(); ++i) {
      step(tensor(run["gradients"][i]), static_cast<std::int64_t>(i) + 1);
      EXPECT_LE(relative_error(backend_->download_values(parameter), run["values"][i]),
                GetParam().bound)
          << "step " << i + 1;
    }
  }

  void follow_sgd(const nlohmann::json& run) {
    const nlohmann::json& settings = run["settings"];
    const SgdStep step{.learning_rate = settings["learning_rate"],
                       .momentum = settings["momentum"],
                       .weight_decay = settings["weight_decay"],
                       .gradient_scale = settings["gradient_scale"]};
    const Tensor parameter = tensor(run["start"]);
    const Tensor velocity = step.momentum != 0 ? zeros_like(parameter) : Tensor();
    follow(run, parameter, [&](const Tensor& gradient, std::int64_t) {
      backend_->sgd(parameter, velocity, gradient, step);
    });
  }

  std::unique_ptr<Backend> backend_ = make_test_backend();
  nlohmann::json fixture_;
};

TEST_P(ReferenceOptimizer, AdamWWithDecoupledDecay) {
  const nlohmann::json& run = fixture_["adamw"];
  const nlohmann::json& settings = run["settings"];
  AdamWStep step{.learning_rate = settings["learning_rate"],
                 .beta1 = settings["beta1"],
                 .beta2 = settings["beta2"],
                 .epsilon = settings["epsilon"],
                 .weight_decay = settings["weight_decay"],
                 .gradient_scale = settings["gradient_scale"]};
  const Tensor parameter = tensor(run["start"]);
  const Tensor first_moment = zeros_like(parameter);
  const Tensor second_moment = zeros_like(parameter);
  follow(run, parameter, [&](const Tensor& gradient, std::int64_t number) {
    step.step = number;
    backend_->adamw(parameter, first_moment, second_moment, gradient, step);
  });
}

TEST_P(ReferenceOptimizer, SgdWithMomentum) {
  follow_sgd(fixture_["sgd_momentum"]);
}

TEST_P(ReferenceOptimizer, SgdWithoutMomentumNeedsNoVelocity) {
  follow_sgd(fixture_["sgd"]);
}

INSTANTIATE_TEST_SUITE_P(Precisions, ReferenceOptimizer,
                         testing::Values(Precision{DType::f64, 1e-12}, Precision{DType::f32, 1e-5}),
                         [](const auto& tested) {
                           return std::string(name_of(tested.param.dtype));
                         });

}  // namespace
}  // namespace ringworld
