#include "parallel/model_gradients.h"

#include <cmath>
#include <utility>
#include <vector>

#include "parallel/sum_over_ranks.h"

namespace ringworld {

void sum_model_gradients(const Mesh& mesh, Strategy& strategy) {
  std::vector<Work> works;
  for (const Shard& shard : strategy.shards()) {
    const Parameter& p = *shard.parameter;
    Communicator* ranks = p.gradient_sum == GradientSum::tensor_ranks ? &mesh.tensor()
                          : p.gradient_sum == GradientSum::end_stages ? mesh.ends()
                                                                      : nullptr;
    if (ranks != nullptr) {
      works.push_back(
          ranks->all_reduce(shard.gradient, shard.gradient, ReduceOp::sum, "model " + p.name));
    }
  }
  for (Work& work : works) {
    work.wait();
  }
}

// Every tensor rank of the last stage knows its model's loss: one of them tells it.
double sum_of_losses(const Mesh& mesh, double loss, std::string label) {
  return mesh.world().all_reduce_value(mesh.place().tensor == 0 ? loss : 0, ReduceOp::sum,
                                       std::move(label));
}

double gradient_norm(const Mesh* mesh, Strategy& strategy) {
  WideSum squares = strategy.gradient_squares();
  if (mesh != nullptr && mesh->shape().model_ranks() > 1) {
    squares = sum_over_ranks(mesh->model(), squares, "gradient norm of the model");
  }
  return std::sqrt(squares.value());
}

}  // namespace ringworld
