// Tensor parallelism over the ranks of a communicator: what models/tensor_parallel.h asks for.
//
// The labels of its calls begin with "tensor".
#pragma once

#include "collectives/communicator.h"
#include "models/model.h"

namespace ringworld {

class TensorRanks final : public TensorParallel {
 public:
  TensorRanks(Communicator& communicator, bool sequence_parallel)
      : TensorParallel(communicator.rank(), communicator.world_size(), sequence_parallel),
        communicator_(communicator) {}

  Tensor gather(Backend& backend, const Tensor& x, const Shape& tokens,
                const std::string& label) const override;
  Tensor reduce(Backend& backend, Tensor partial, Category category,
                const std::string& label) const override;
  Tensor stack(Backend& backend, const Tensor& x, const std::string& label) const override;
  void sum(const Tensor& x, const std::string& label) const override;

  // What all ranks of the group send for one micro-batch of B sequences of T tokens through the
  // model's units, by theory: for the rows between layers, and not for the few numbers of a loss
  // over a split vocabulary. `recomputed`: units of which forward runs twice.
  Bytes expected_traffic(const Model& model, const Shape& tokens,
                         const std::vector<bool>& recomputed) const;

 private:
  std::vector<std::int64_t> counts(std::int64_t rows, std::int64_t columns) const;

  Communicator& communicator_;
};

}  // namespace ringworld
