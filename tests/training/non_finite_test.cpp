// A loss or gradient that is not finite is traced to its rank and tensor.
#include "training/non_finite.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/parallel/toy_model.h"
#include "tests/support/expect_error.h"
#include "training/gradient_step.h"

namespace ringworld {
namespace {

const HostBatch batch{.micro_batch = 1, .sequence_length = 2, .tokens = {1, 2}, .targets = {2, 3}};

// Three ranks train one step of a model of two units, "h.0" and "h.1", each with a weight of its
// name. `loss` and `gradient` are what unit h.1 does on `rank`; everything else is zero and one.
void step_with(const std::function<double(int rank)>& loss,
               const std::function<double(int rank)>& gradient) {
  run_on_threads(3, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({.poison = true}), /*threads=*/1);
    Communicator communicator(transport, *backend);
    Model model("toy", DType::f32, 11, 0);
    for (const int layer : {0, 1}) {
      const std::string name = layer == 0 ? "h.0" : "h.1";
      Parameter* weight =
          model.add_parameter({.name = name + ".mlp.weight", .shape = {4}, .deviation = 1});
      const int rank = transport.rank();
      model.add_unit(std::make_unique<ToyUnit>(
          name, std::vector{weight},
          [=](Backend& b, const Batch& x) {
            Tensor losses = b.zeros(DType::f64, {x.targets.elements()}, Category::activations);
            b.fill(losses, layer == 1 ? loss(rank) : 0);
            return losses;
          },
          [=](Backend& b, const Batch& x) {
            add_gradient(b, *weight, x, layer == 1 ? gradient(rank) : 1);
          }));
    }
    const auto strategy = make_strategy({}, model, *backend, communicator, 1);
    const HostBatch batches[] = {batch, batch};
    const Mesh mesh(communicator);
    const GradientStep step = compute_gradients(model, *backend, *strategy, &mesh, batches);
    ASSERT_FALSE(std::isfinite(step.loss) && std::isfinite(step.gradient_norm));
    throw_non_finite(model, *backend, *strategy, mesh,
                     Stage(static_cast<int>(model.units().size())), batches, 17, step);
  });
}

double zero(int) {
  return 0;
}

TEST(NonFinite, AGradientOnOneRankIsNamed) {
  const std::string message = expect_error<NumericalError>(
      [] { step_with(zero, [](int rank) { return rank == 2 ? nan : 1; }); },
      {"step 17", "rank 2", "gradient of h.1.mlp.weight", "micro-batch 1"});
  EXPECT_EQ(message.find("h.0"), std::string::npos) << message;
}

TEST(NonFinite, AnOutputComesBeforeTheGradientsItSpoils) {
  expect_error<NumericalError>(
      [] {
        step_with([](int rank) { return rank >= 1 ? nan : 0; },
                  [](int rank) { return rank >= 1 ? nan : 1; });
      },
      {"step 17", "rank 1", "output of h.1"});
}

// Parameters are looked at before anything runs.
TEST(NonFinite, AParameterComesFirst) {
  expect_error<NumericalError>(
      [] {
        run_on_threads(2, [](Transport& transport) {
          const auto backend = make_cpu_backend(Device::create({.poison = true}), /*threads=*/1);
          Communicator communicator(transport, *backend);
          const auto model = make_model(
              {.layers = 1, .heads = 1, .width = 4, .vocabulary = 11, .context = 4}, DType::f32);
          const auto strategy = make_strategy({}, *model, *backend, communicator, 1);
          if (transport.rank() == 1) {
            backend->fill(model->parameters()[1]->value.slice(0, 1), nan);
          }
          const HostBatch batches[] = {batch};
          const Mesh mesh(communicator);
          const GradientStep step = compute_gradients(*model, *backend, *strategy, &mesh, batches);
          throw_non_finite(*model, *backend, *strategy, mesh,
                           Stage(static_cast<int>(model->units().size())), batches, 3, step);
        });
      },
      {"step 3", "rank 1", "parameter wpe.weight"});
}

// Every rank's own gradient is finite, and only their sum is not: two micro-batches of 2 of the 12
// tokens make 0.9 of the largest f32 on each of three ranks.
TEST(NonFinite, ASumOverRanksThatOverflowsIsSaid) {
  const double gradient = 0.9 * std::numeric_limits<float>::max() * 12 / 2;
  expect_error<NumericalError>([&] { step_with(zero, [=](int) { return gradient; }); },
                               {"step 17", "sum over ranks overflowed"});
}

}  // namespace
}  // namespace ringworld
