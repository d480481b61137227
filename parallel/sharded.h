// Sharded data parallel: ZeRO (Rajbhandari et al., SC 2020) and FSDP (Zhao et al., VLDB 2023).
// Every rank trains on its own part of the batch, and holds whole only what the degree leaves
// whole:
//
//   zero1         optimizer state is sharded
//   zero2         gradients, too
//   zero3, fsdp   parameters, too
//
// The parameters of a unit form a group: one flat tensor, of which each rank owns a consecutive
// piece. Pieces differ by at most one element (chunk_range), and may be empty or cut through a
// parameter; there is no padding. A tied weight is in a group of its own, with first and last user;
// parameters that no unit uses form a group, too, whose gradient is zero.
//
// What moves in a step, with N ranks and P parameters, summed over ranks in units of (N - 1) P:
//
//   zero1, zero2   gradients reduce-scattered once (zero2: in every micro-batch), as soon as a
//                  group's are complete; the updated parameters gathered once
//   zero3          parameters gathered in every forward and, unless they stayed, in every backward;
//                  gradients reduce-scattered in every micro-batch
//
// With ReduceGradients::once gradients are held whole over all micro-batches and reduced in the
// last; with every_micro_batch each rank keeps the sum of its own piece only, and whole gradients
// exist for the two units at work. The gather of the next `prefetch` units is under way while one
// computes. Whole parameters and gradients that come and go are charged to Category::gathered.
//
// Hybrid sharding: with a shard group of S ranks the world is N / S replicas of S neighbours.
// Shards are within a replica; at the end of a step the gradients of equal shards are summed over
// replicas.
//
// Parameters may be offloaded where they are sharded (ZeRO-Infinity, Rajbhandari et al., SC 2021):
// a rank's piece of them waits in host memory, or in a file, and is fetched for each gather, one
// unit ahead of it. The optimizer finds it in host memory.
#pragma once

#include <unordered_map>
#include <utility>

#include "collectives/schedule.h"
#include "parallel/strategy.h"

namespace ringworld {

enum class ShardingDegree : std::uint8_t { optimizer = 1, gradients = 2, parameters = 3 };

class Sharded : public Strategy {
 public:
  // `options` as refusal() lets pass.
  Sharded(ShardingDegree degree, const StrategyOptions& options, Model& model, Backend& backend,
          Communicator& communicator, std::uint64_t seed, const Tiers& tiers);

  std::string_view name() const override { return name_; }
  void begin_step(int micro_batches) override;
  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_recompute(int unit) override;
  void before_backward(int unit, int micro_batch) override;
  void after_backward_input(int unit) override;
  void after_backward(int unit, int micro_batch) override;
  void after_evaluation() override;
  void finish_gradients() override;
  void begin_update() override;
  void finish_update() override;
  const std::vector<Shard>& shards() const override { return shards_; }
  WideSum gradient_squares() override;
  Tensor full_value(const Parameter& parameter) override;
  Tensor full_gradient(const Parameter& parameter) override;
  Bytes expected_traffic(int micro_batches) const override;
  Copies expected_copies() const override;

 private:
  // Parameters that live and move together.
  struct Group {
    std::string label;  // the unit's name, or the tied parameter's
    std::vector<Parameter*> parameters;
    int first_user;  // units of the chain; -1: none
    int last_user;
    std::int64_t elements = 0;
    Communicator::Counts counts = {};  // elements of every rank's piece
    std::int64_t first_own = 0;        // element of this rank's piece

    // (own) This rank's: of the whole, where that is always there; in host memory, where it is
    // offloaded; undefined while it is in the file.
    Tensor value_piece = {};
    std::shared_ptr<const TierBlock> value_block = {};  // in the file
    Tensor fetched = {};                                // (own) the piece on the device, offloaded
    Work fetch = {};                                    // that fills `fetched`
    Tensor gradient_piece = {};                         // (own) this rank's sum
    Tensor values = {};     // (elements) whole; parameter sharding: while gathered
    Tensor gradients = {};  // (elements) whole; while they are added to
    Work gather = {};       // that fills `values`
    Work reduction = {};    // of `gradients` to this rank's piece of them
    bool adds = false;      // the reduction's result is added to the piece, not its first value
  };

  void make_groups();
  void make_memory();
  void make_shards();
  // Initial values are a function of seed, name and element: each rank computes its own pieces, and
  // replicas take the first one's.
  void make_values(std::uint64_t seed);
  // The shards' values are where the pieces are now.
  void point_shards_to_values();
  bool shards_parameters() const { return degree_ == ShardingDegree::parameters; }
  std::int64_t own(const Group& group) const {
    return group.counts[static_cast<std::size_t>(shard_ranks_.rank())];
  }

  // Makes each parameter's value or gradient its part of `whole`, or undefined with it.
  static void bind(const Group& group, Tensor Parameter::*tensor, const Tensor& whole);
  void use(int unit, int direction);
  bool offloads() const { return tiers_.host != nullptr; }
  void start_fetch(Group& group);
  void start_gather(Group& group);
  // This rank's piece on the device, for as long as the tensor lives.
  Tensor piece_on_device(const Group& group);
  void release_values(Group& group);
  void finish_reductions();
  // Values that the optimizer had in host memory go to the file, and leave that.
  void finish_storing();
  // The parameter's part of all ranks' pieces of its group; every rank calls.
  Tensor assemble(const Parameter& parameter, const Group& group, const Tensor& piece);

  const ShardingDegree degree_;
  const std::string name_;
  const bool reduces_once_;
  const bool reshards_after_forward_;
  const int prefetch_;
  const Tiers tiers_;  // for parameters; none: they stay on the device
  Model& model_;
  Backend& backend_;
  std::unique_ptr<Communicator> own_shard_ranks_;  // a part of the world, if it is one
  std::unique_ptr<Communicator> replicas_;         // ranks with equal shards; null: only this one
  Communicator& shard_ranks_;                      // over which a parameter is sharded
  std::vector<Group> groups_;                      // in the order of their first users
  std::vector<std::vector<Group*>> used_by_;       // by unit
  std::unordered_map<const Parameter*, Group*> group_of_;
  std::vector<Shard> shards_;
  std::vector<std::pair<const Group*, Range>> places_;  // of the shards, in their group's piece
  std::vector<Group*> reducing_;                        // whose reduction is under way
  int micro_batches_ = 0;
};

}  // namespace ringworld
