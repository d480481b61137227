// A model in a 16-bit format has gradients in f32, under every strategy: 512 micro-batches that
// each add 1 make 512, where a bf16 accumulator would stop at 256.
#include <gtest/gtest.h>

#include "parallel/strategy.h"
#include "tests/parallel/toy_model.h"
#include "training/gradient_step.h"

namespace ringworld {
namespace {

constexpr std::int64_t micro_batches = 512;

// The gradient (3) after a step of `micro_batches` over all ranks, of one token each.
std::vector<double> gradient_of(Transport& transport, DType dtype, bool single) {
  const auto backend = make_cpu_backend(Device::create({.poison = true}), /*threads=*/1);
  Communicator communicator(transport, *backend);
  Model model("toy", dtype, 11, 0);
  Parameter* weight = model.add_parameter({.name = "weight", .shape = {3}, .deviation = 1});
  model.add_unit(std::make_unique<ToyUnit>(
      "unit", std::vector{weight}, no_loss,
      [=](Backend& b, const Batch& batch) { add_gradient(b, *weight, batch, micro_batches); }));
  const auto strategy = single ? make_single_process(model, *backend, 1)
                               : make_strategy({}, model, *backend, communicator, 1);
  EXPECT_EQ(strategy->shards()[0].gradient.dtype(), gradient_dtype(dtype));
  EXPECT_EQ(strategy->shards()[0].value.dtype(), dtype);
  const HostBatch batch{.micro_batch = 1, .sequence_length = 1, .tokens = {1}, .targets = {2}};
  const std::vector<HostBatch> own(static_cast<std::size_t>(micro_batches / transport.world_size()),
                                   batch);
  const Mesh mesh(communicator);
  compute_gradients(model, *backend, *strategy, single ? nullptr : &mesh, own);
  return backend->download_values(strategy->full_gradient(*weight));
}

TEST(WideGradients, AddUpOverManyMicroBatches) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    for (const int ranks : {1, 2, 4}) {
      run_on_threads(ranks, [&](Transport& transport) {
        EXPECT_EQ(gradient_of(transport, dtype, /*single=*/false),
                  std::vector<double>(3, micro_batches));
        if (ranks == 1) {
          EXPECT_EQ(gradient_of(transport, dtype, /*single=*/true),
                    std::vector<double>(3, micro_batches));
        }
      });
    }
  }
}

}  // namespace
}  // namespace ringworld
