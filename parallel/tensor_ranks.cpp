#include "parallel/tensor_ranks.h"

#include <utility>

#include "collectives/schedule.h"

namespace ringworld {

std::vector<std::int64_t> TensorRanks::counts(std::int64_t rows, std::int64_t columns) const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < size(); ++rank) {
    counts.push_back(chunk_range(rows, size(), rank).count * columns);
  }
  return counts;
}

Tensor TensorRanks::gather(Backend& backend, const Tensor& x, const Shape& tokens,
                           const std::string& label) const {
  if (!sequence_parallel()) {
    return x;
  }
  const std::int64_t columns = x.shape()[-1];
  Tensor whole = backend.empty(x.dtype(), {tokens[0], tokens[1], columns}, Category::workspace);
  communicator_.all_gather(whole, x, counts(tokens.elements(), columns), "tensor " + label).wait();
  return whole;
}

Tensor TensorRanks::reduce(Backend& backend, Tensor partial, Category category,
                           const std::string& label) const {
  if (!sequence_parallel()) {
    sum(partial, label);
    return partial;
  }
  const std::int64_t columns = partial.shape()[-1];
  const std::int64_t rows = partial.shape().rows();
  Tensor own = backend.empty(partial.dtype(), {1, part(rows).count, columns}, category);
  communicator_
      .reduce_scatter(own, partial, counts(rows, columns), ReduceOp::sum, "tensor " + label)
      .wait();
  return own;
}

Tensor TensorRanks::stack(Backend& backend, const Tensor& x, const std::string& label) const {
  Tensor all = backend.empty(x.dtype(), {size(), x.elements()}, Category::workspace);
  communicator_.all_gather(all, x, "tensor loss " + label).wait();
  return all;
}

void TensorRanks::sum(const Tensor& x, const std::string& label) const {
  if (is_split()) {
    communicator_.all_reduce(x, x, ReduceOp::sum, "tensor " + label).wait();
  }
}

Bytes TensorRanks::expected_traffic(const Model& model, const Shape& tokens,
                                    const std::vector<bool>& recomputed) const {
  if (!is_split()) {
    return Bytes(0);
  }
  const std::int64_t rows = tokens.elements();
  const std::int64_t elements = rows * model.width();
  const bool equal = rows % size() == 0;
  const auto sent = [&](Operation operation, DType dtype) {
    return communicator_.expected_traffic(operation, elements, dtype, equal);
  };
  const DType sums = gradient_dtype(model.dtype());  // 16-bit sums travel in f32
  const Bytes gather = sequence_parallel() ? sent(Operation::all_gather, model.dtype()) : Bytes(0);
  const Bytes reduce = sequence_parallel() ? sent(Operation::reduce_scatter, sums)
                                           : sent(Operation::all_reduce, sums);
  Bytes expected;
  for (std::size_t i = 0; i < model.units().size(); ++i) {
    const SeamCrossings forward = model.units()[i]->forward_seams();
    const SeamCrossings backward = model.units()[i]->backward_seams();
    const int forwards = recomputed[i] ? 2 : 1;
    expected += (forwards * forward.gathers + backward.gathers) * gather +
                (forwards * forward.reduces + backward.reduces) * reduce;
  }
  return expected;
}

}  // namespace ringworld
