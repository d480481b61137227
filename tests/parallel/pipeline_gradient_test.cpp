// A pipeline of units whose gradients are known: how they add up over micro-batches, and the norm
// over stages.
#include <gtest/gtest.h>

#include "tests/collectives/on_threads.h"
#include "training/gradient_step.h"

namespace ringworld {
namespace {

constexpr std::int64_t width = 3;

// Adds `gradient` to its only weight's gradient for every micro-batch, before the factor.
class Constant : public Unit {
 public:
  Constant(std::string name, Parameter* weight, double gradient, bool is_first, bool is_last)
      : Unit(std::move(name)), gradient_(gradient), is_first_(is_first), is_last_(is_last) {
    parameters_ = {weight};
  }
  Tensor forward(Backend& backend, const Batch& batch, const Tensor&, Saved&) override {
    return is_last_ ? backend.zeros(DType::f64, {batch.targets.elements()}, Category::activations)
                    : between(backend, batch);
  }
  Tensor backward(Backend& backend, const Batch& batch, const Tensor&, Saved&) override {
    const Tensor& sum = parameters_[0]->gradient;
    const Tensor more = backend.empty(sum.dtype(), sum.shape(), Category::workspace);
    backend.fill(more, gradient_ * batch.gradient_factor);
    backend.add(sum, sum, more);
    return is_first_ ? Tensor() : between(backend, batch);
  }

 private:
  static Tensor between(Backend& backend, const Batch& batch) {
    const Shape& tokens = batch.tokens.shape();
    return backend.zeros(DType::f64, {tokens[0], tokens[1], width}, Category::activations);
  }

  const double gradient_;
  const bool is_first_;
  const bool is_last_;
};

// One step of `micro_batches` of one token each on two stages; a gradient for each unit of the
// chain. Returns what one of the stages has, and the norm, which both have.
struct Result {
  std::vector<double> gradients;  // of the whole chain
  double norm = 0;
};

Result step(const std::vector<double>& gradients, int micro_batches, const std::string& schedule) {
  Result result{.gradients = std::vector<double>(gradients.size())};
  std::vector<double> norms(2);
  run_communicators(2, [&](Communicator& world) {
    Backend& backend = world.backend();
    const Mesh mesh(world, {.pipeline = 2});
    Model model("toy", DType::f64, 5, 0);
    model.set_width(width);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::string name = "unit " + std::to_string(i);
      Parameter* weight = model.add_parameter({.name = name, .shape = {1}});
      model.add_unit(std::make_unique<Constant>(name, weight, gradients[i], i == 0,
                                                i + 1 == gradients.size()));
    }
    const Stage stage(mesh.pipeline(), {.schedule = schedule, .layers = {1, 1}}, model);
    model.keep(stage.kept());
    const auto strategy = make_strategy({}, model, backend, mesh.data(), /*seed=*/1);
    const std::vector<HostBatch> batches(
        static_cast<std::size_t>(micro_batches),
        {.micro_batch = 1, .sequence_length = 1, .tokens = {1}, .targets = {2}});
    const GradientStep done =
        compute_gradients(model, backend, *strategy, &mesh, batches, {.stage = &stage});
    norms[static_cast<std::size_t>(world.rank())] = done.gradient_norm;
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      result.gradients[i + static_cast<std::size_t>(2 * world.rank())] =
          backend.download_values(model.parameters()[i]->gradient)[0];
    }
  });
  EXPECT_EQ(norms[0], norms[1]);
  result.norm = norms[0];
  return result;
}

// Two rounds of four micro-batches, whose gradients are 2 each: 16 over 8 tokens are 2, not a mean
// of means and not a moving average.
TEST(PipelineGradient, IsDividedOnceByTheTokensOfTheStep) {
  for (const std::string schedule : {"fill-drain", "1f1b", "zb-h1", "zb-h2"}) {
    EXPECT_EQ(step({2, 2, 2, 2}, 8, schedule).gradients, (std::vector<double>{2, 2, 2, 2}))
        << schedule;
  }
}

TEST(PipelineGradient, NormIsOverAllStages) {
  EXPECT_EQ(step({0, 3, 4, 0}, 1, "1f1b").norm, 5);
  EXPECT_EQ(step({3, 0, 0, 4}, 3, "1f1b").norm, 5);
}

}  // namespace
}  // namespace ringworld
