// Two dumps of the same step in any two layouts, tensor by tensor: which is the first to differ?
//
// Tensors are matched by what they are and, between units, by sequence, and are gone through in the
// order in which one follows from another: outputs of forward from the first unit on, the loss,
// gradients between units from the last unit down, gradients of parameters likewise, their norm,
// parameters. What comes first is where to look for the cause.
//
// B is the control: the error of a is |a - b| / |b| in the 2-norm, the ratio (a . b) / (b . b).
// Between units both are of one sequence, the worst. Of whole tensors the ratio is that of the
// smallest shard, of either dump, that explains the error: a factor on one rank shows as it is.
// Gradients are compared without their loss scales.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/dump_format.h"

namespace ringworld {

struct TensorDifference {
  DumpKind kind = DumpKind::forward;
  std::string name;
  double relative_error = 0;
  double ratio = 1;
  bool bit_equal = true;
  std::int64_t sequence = -1;  // the worst; -1: the tensor is of no sequences, or equal in all
  // Where the bound does not hold: sequences, and the ranks of either dump that hold those or, of
  // whole tensors, whose shards differ. In order.
  std::vector<std::int64_t> sequences = {};
  std::vector<int> ranks_a = {};
  std::vector<int> ranks_b = {};
};

// A tensor that only one dump has.
struct LonelyTensor {
  DumpKind kind = DumpKind::forward;
  std::string name;
  std::vector<std::int64_t> sequences = {};  // empty: the whole
};

struct DumpComparison {
  double bound = 0;
  std::vector<TensorDifference> tensors;  // that both have, in the order above
  std::vector<LonelyTensor> only_in_a;
  std::vector<LonelyTensor> only_in_b;

  bool holds(const TensorDifference& tensor) const { return tensor.relative_error <= bound; }
  const TensorDifference* first_different() const;  // null: the bound holds for all
  bool equal() const {
    return first_different() == nullptr && only_in_a.empty() && only_in_b.empty();
  }
};

// What rounding alone may make of tensors of this precision: for f64 and f32 as verify has it, for
// the 16-bit formats a few of their last places.
double default_dump_bound(DType precision);
// The larger one of the two dumps'.
double default_dump_bound(const Dump& a, const Dump& b);

// Throws DataError when they are not of the same model and step, a tensor has another shape in the
// other dump, or a file cannot be read.
DumpComparison compare_dumps(const Dump& a, const Dump& b, double bound);

}  // namespace ringworld
