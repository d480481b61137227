// What a strategy of the data axis takes around units: parallel/ddp.cpp and sharded.cpp without
// their tensors, on data rank 0, whose pieces are the largest.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/layout.h"
#include "planner/runtime_books.h"
#include "planner/runtime_units.h"
#include "planner/transformer.h"

namespace ringworld {

class StrategyBooks {
 public:
  // Of a rank with these units of the model's chain, on tensor rank 0. `model` as runtime_refusal()
  // lets pass; layout and books outlive this.
  StrategyBooks(const Transformer& model, const Layout& layout, const std::vector<UnitKind>& units,
                Books& books);

  std::int64_t elements() const { return sum(&Group::elements); }
  std::int64_t own() const { return sum(&Group::own); }

  // As in Strategy.
  void before_forward(int unit) { use(unit, 1); }
  void after_forward(int unit);
  void before_recompute(int unit) { use(unit, -1); }
  void before_backward(int unit);
  void after_backward(int unit);
  void finish_reductions();

 private:
  // Parameters that move together.
  struct Group {
    std::int64_t elements;
    std::int64_t own;  // of this rank
    int first_user;
    int last_user;
    Held values = {};     // whole, gathered
    Held gradients = {};  // whole, gathered
    Held fetched = {};    // this rank's piece, on its way from a tier

    bool is_used_by(int unit) const { return first_user == unit || last_user == unit; }
  };

  std::int64_t sum(std::int64_t Group::*what) const;
  void add(std::int64_t elements, int first_user, int last_user);
  bool gathers_values() const { return layout_.sharding == Sharding::zero3; }
  bool gathers_gradients() const { return layout_.sharding >= Sharding::zero2; }
  void use(int unit, int direction);

  const Layout& layout_;
  Books& books_;
  const int last_;  // unit of this rank
  std::vector<Group> groups_;
  std::vector<Group*> reducing_;
};

}  // namespace ringworld
