// Losses and gradients against PyTorch's for the same weights and batch
// (fixtures/make_fixtures.py).
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/models/support.h"

namespace ringworld {
namespace {

struct Case {
  const char* fixture;
  DType dtype;
  double bound;  // relative error, per tensor
};

class Reference : public testing::TestWithParam<Case> {};

TEST_P(Reference, LossesAndGradientsAreThoseOfPyTorch) {
  const Case& c = GetParam();
  std::ifstream file(std::string(RINGWORLD_SOURCE_DIR "/tests/models/fixtures/") + c.fixture);
  ASSERT_TRUE(file) << c.fixture;
  const nlohmann::json fixture = nlohmann::json::parse(file);

  const nlohmann::json& asked = fixture["options"];
  const std::unique_ptr<Model> model = make_model({.name = asked["name"],
                                                   .layers = asked["layers"],
                                                   .heads = asked.value("heads", 0),
                                                   .width = asked["width"],
                                                   .hidden = asked.value("hidden", 0),
                                                   .vocabulary = asked["vocabulary"],
                                                   .context = asked.value("context", 0),
                                                   .kv_heads = asked.value("kv_heads", 0)},
                                                  c.dtype);
  const std::unique_ptr<Backend> backend = make_test_backend();
  bind(*backend, *model, /*seed=*/0);

  const nlohmann::json& parameters = fixture["parameters"];
  ASSERT_EQ(parameters.size(), model->parameters().size());
  const double unit = 1.0 / fixture["unit"].get<double>();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = *model->parameters()[i];
    ASSERT_EQ(p.name, parameters[i]["name"].get<std::string>());
    std::vector<double> values = parameters[i]["value"];
    for (double& value : values) {
      value *= unit;
    }
    const auto shape = parameters[i]["shape"].get<std::vector<std::int64_t>>();
    ASSERT_EQ(static_cast<int>(shape.size()), p.shape.axes());
    for (int axis = 0; axis < p.shape.axes(); ++axis) {
      ASSERT_EQ(shape[static_cast<std::size_t>(axis)], p.shape[axis]) << p.name;
    }
    backend->upload_values(p.value, values);
  }

  const Shape shape{fixture["shape"][0], fixture["shape"][1]};
  const Batch batch{.tokens = upload_ints(*backend, shape, fixture["tokens"]),
                    .targets = upload_ints(*backend, shape, fixture["targets"]),
                    .gradient_factor = 1.0 / fixture["trained"].get<double>()};
  const std::vector<double> losses = forward_backward(*backend, *model, batch);

  EXPECT_LE(relative_error(losses, fixture["losses"]), c.bound);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = *model->parameters()[i];
    EXPECT_LE(relative_error(backend->download_values(p.gradient), parameters[i]["gradient"]),
              c.bound)
        << p.name;
  }
}

// The 16-bit formats round every tensor: on the longest way through this GPT-2 10 times in each of
// its 2 layers and 4 times in embedding and head, and as often on the way back. Llama's rotary
// positions are one more in a layer. A rounding in bf16 is up to 2^-8, in f16 up to 2^-11.
constexpr double roundings = 2 * (2 * 10 + 4);
constexpr double llama_roundings = 2 * (2 * 11 + 4);

INSTANTIATE_TEST_SUITE_P(
    Models, Reference,
    testing::Values(Case{"gpt2.json", DType::f64, 1e-12}, Case{"gpt2.json", DType::f32, 1e-5},
                    Case{"gpt2.json", DType::bf16, roundings / 256},
                    Case{"gpt2.json", DType::f16, roundings / 2048},
                    Case{"llama.json", DType::f64, 1e-12}, Case{"llama.json", DType::f32, 1e-5},
                    Case{"llama.json", DType::bf16, llama_roundings / 256},
                    Case{"llama.json", DType::f16, llama_roundings / 2048},
                    Case{"mlp.json", DType::f64, 1e-12}, Case{"mlp.json", DType::f32, 1e-5},
                    Case{"mlp.json", DType::bf16, roundings / 256},
                    Case{"mlp.json", DType::f16, roundings / 2048}),
    [](const auto& tested) {
      const std::string fixture = tested.param.fixture;
      return fixture.substr(0, fixture.find('.')) + "_" + std::string(name_of(tested.param.dtype));
    });

}  // namespace
}  // namespace ringworld
