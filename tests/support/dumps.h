// Dumps of one step of a tiny GPT, by ranks on threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "training/batch_plan.h"
#include "training/optimizer.h"
#include "training/tensor_dump.h"
#include "training/token_stream.h"

namespace ringworld {

struct DumpedStep {
  int ranks = 1;
  std::string strategy = "ddp";
  DType precision = DType::f64;
  std::int64_t global_batch = 4;
  std::int64_t micro_batch = 1;
  double loss_scale = 1;
  std::int64_t step = 2;
  ModelOptions model = {.name = "gpt2-tiny",
                        .layers = 2,
                        .heads = 2,
                        .width = 8,
                        .vocabulary = 11,
                        .context = 6,
                        .dropout = 0.1};
  // What goes wrong before the step, and between gradients and optimizer.
  std::function<void(int rank, Backend& backend, Model& model)> before = {};
  std::function<void(int rank, Backend& backend, Strategy& strategy)> after_gradients = {};
};

inline void dump_step(const std::string& directory, const DumpedStep& run) {
  constexpr std::int64_t length = 6;
  const BatchPlan plan = plan_batches(run.global_batch, run.micro_batch, run.ranks);
  run_on_threads(run.ranks, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({.poison = true}), /*threads=*/1);
    Communicator communicator(transport, *backend);
    const auto model = make_model(run.model, run.precision);
    const auto strategy =
        make_strategy({.name = run.strategy}, *model, *backend, communicator, /*seed=*/1);
    const auto optimizer =
        make_optimizer({.kind = OptimizerKind::sgd}, strategy->shards(), *backend);
    if (run.before) {
      run.before(transport.rank(), *backend, *model);
    }
    const TokenDataset data = whole_dataset(TokenStream::synthetic(11, 1000, 3), length);
    std::vector<HostBatch> batches;
    for (std::int64_t i = 0; i < plan.accumulation_steps; ++i) {
      const std::int64_t first = plan.first_position(run.step - 1, i, transport.rank());
      std::vector<std::int64_t> samples;
      for (std::int64_t row = 0; row < run.micro_batch; ++row) {
        samples.push_back(first + row);
      }
      batches.push_back(read_batch(data, samples));
      batches.back().draw_dropout(/*seed=*/5, first);
    }
    TensorDump dump({.directory = directory, .step = run.step}, *model, *backend, communicator);
    const Mesh mesh(communicator);
    const GradientStep step = compute_gradients(*model, *backend, *strategy, &mesh, batches,
                                                {.loss_scale = run.loss_scale, .observer = &dump});
    if (run.after_gradients) {
      run.after_gradients(transport.rank(), *backend, *strategy);
    }
    dump.write_gradients(*strategy, step);
    strategy->begin_update();
    optimizer->step(0.1, 1 / step.loss_scale);
    strategy->finish_update();
    dump.write_parameters(*strategy);
    dump.finish();
  });
}

// This rank's part of this gradient is multiplied, complete and reduced as it is.
inline auto multiply_gradient(int wrong_rank, std::string name, double factor) {
  return [=](int rank, Backend& backend, Strategy& strategy) {
    for (const Shard& shard : strategy.shards()) {
      if (rank == wrong_rank && shard.parameter->name == name) {
        backend.scale(shard.gradient, factor);
      }
    }
  };
}

}  // namespace ringworld
