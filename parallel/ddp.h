// Distributed data parallel (Li et al., VLDB 2020): every rank holds the whole model, trains on its
// own part of the batch, and the gradients are summed over ranks.
//
// Gradients live in buckets: flat tensors of which the parameters' gradients are views, so that no
// byte is copied to be reduced. Buckets are filled in the order in which backward completes
// gradients, last unit first. In the last micro-batch of a step a bucket's all-reduce starts on the
// communication stream as soon as its last gradient is complete, while backward goes on; earlier
// micro-batches only accumulate. So a step has exactly one reduction per bucket, however many
// micro-batches it has.
//
// A tied weight is complete when the first unit of the chain that uses it has run backward. A
// weight that no unit uses, or that got no gradient on this rank, takes part with zeros.
#pragma once

#include "parallel/strategy.h"

namespace ringworld {

class Ddp : public Strategy {
 public:
  // Initial values are computed by every rank, then replaced by rank 0's, then checked: a rank
  // whose parameters differ ends the run with CommunicationError that names parameter and ranks.
  Ddp(Model& model, Backend& backend, Communicator& communicator, Bytes bucket_size,
      std::uint64_t seed);

  std::string_view name() const override { return "ddp"; }
  void begin_step(int micro_batches) override;
  void after_backward(int unit, int micro_batch) override;
  void finish_gradients() override;
  const std::vector<Shard>& shards() const override { return shards_; }
  WideSum gradient_squares() override { return squares_of_counted(backend_, shards_); }
  Tensor full_value(const Parameter& parameter) override { return parameter.value; }
  Tensor full_gradient(const Parameter& parameter) override { return parameter.gradient; }
  Bytes expected_traffic(int micro_batches) const override;
  Copies expected_copies() const override {
    const int ranks = communicator_.world_size();
    return {.parameters = ranks, .gradients = ranks, .optimizer = ranks};
  }

  int bucket_count() const { return static_cast<int>(buckets_.size()); }

 private:
  struct Bucket {
    std::string label;
    Tensor gradients;    // (elements of all its parameters)
    int complete_after;  // the unit whose backward completes it; -1: none does
    Work reduction;
  };

  void make_buckets(Bytes bucket_size);
  void make_parameters(std::uint64_t seed);
  void check_replicas();
  void start_reductions_completed_by(int unit);

  Model& model_;
  Backend& backend_;
  Communicator& communicator_;
  std::vector<Bucket> buckets_;  // in the order in which they complete
  std::vector<Shard> shards_;    // the same order
  int micro_batches_ = 0;
  std::size_t next_bucket_ = 0;  // the first whose reduction has not started
};

}  // namespace ringworld
