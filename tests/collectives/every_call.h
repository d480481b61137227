// Every operation with every algorithm that serves the ranks, on tensors that are made once: for
// tests of what calls send and what memory they take. What the tensors hold does not matter.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.h"

namespace ringworld {

class EveryCall {
 public:
  // `count` elements in each rank's block.
  EveryCall(Communicator& communicator, DType dtype, std::int64_t count)
      : communicator_(communicator),
        ranks_(communicator.world_size()),
        count_(count),
        whole_(tensor(dtype, ranks_ * count)),
        other_(tensor(dtype, ranks_ * count)),
        part_(tensor(dtype, count)) {}

  // One after the other on the communication stream, all of them under way at once; returns when
  // all are done. The label of each is "operation algorithm".
  void make() {
    for (const Algorithm& algorithm : algorithms()) {
      if (!algorithm.library && algorithm.refuses(ranks_).empty() &&
          algorithm.operation != Operation::barrier) {
        communicator_.use(algorithm.operation, algorithm.name);
        make(algorithm);
      }
    }
    for (Work& work : std::exchange(works_, {})) {
      work.wait();
    }
  }

 private:
  Tensor tensor(DType dtype, std::int64_t elements) {
    Backend& backend = communicator_.backend();
    const Tensor x = backend.empty(dtype, Shape{elements}, Category::communication);
    backend.fill(x, 1);
    return x;
  }

  void make(const Algorithm& algorithm) {
    const std::string label = std::string(name_of(algorithm.operation)) + " " + algorithm.name;
    const Tensor own = whole_.slice(communicator_.rank() * count_, count_);
    const auto add = [this](Work work) { works_.push_back(std::move(work)); };
    switch (algorithm.operation) {
      case Operation::all_reduce:
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
          add(communicator_.all_reduce(whole_, whole_, op, label));
          add(communicator_.all_reduce(other_, whole_, op, label));
        }
        break;
      case Operation::reduce_scatter:
        for (const ReduceOp op : {ReduceOp::avg, ReduceOp::min}) {
          add(communicator_.reduce_scatter(part_, whole_, op, label));
          add(communicator_.reduce_scatter(own, whole_, op, label));
        }
        add(communicator_.reduce_scatter(own_block_0_of(part_), block_0_of(whole_), uneven(),
                                         ReduceOp::sum, label));
        break;
      case Operation::all_gather:
        add(communicator_.all_gather(whole_, part_, label));
        add(communicator_.all_gather(whole_, own, label));
        add(communicator_.all_gather(block_0_of(whole_), own_block_0_of(part_), uneven(), label));
        break;
      case Operation::all_to_all:
        add(communicator_.all_to_all(other_, whole_, label));
        if (!algorithm.equal_chunks) {
          const Communicator::Counts counts(static_cast<std::size_t>(ranks_), count_ / 2);
          add(communicator_.all_to_all(other_.slice(0, ranks_ * (count_ / 2)), counts,
                                       whole_.slice(0, ranks_ * (count_ / 2)), counts, label));
        }
        break;
      default:
        for (const int root : {0, ranks_ - 1}) {
          make_rooted(algorithm.operation, root, label);
        }
    }
  }

  void make_rooted(Operation operation, int root, const std::string& label) {
    switch (operation) {
      case Operation::broadcast:
        works_.push_back(communicator_.broadcast(whole_, root, label));
        break;
      case Operation::reduce:
        works_.push_back(communicator_.reduce(other_, whole_, ReduceOp::sum, root, label));
        break;
      case Operation::gather:
        works_.push_back(communicator_.gather(whole_, part_, root, label));
        break;
      default:
        works_.push_back(communicator_.scatter(part_, whole_, root, label));
    }
  }

  // Blocks of which only rank 0's has elements.
  Communicator::Counts uneven() const {
    Communicator::Counts counts(static_cast<std::size_t>(ranks_));
    counts[0] = count_;
    return counts;
  }
  Tensor block_0_of(const Tensor& x) const { return x.slice(0, count_); }
  Tensor own_block_0_of(const Tensor& x) const {
    return x.slice(0, communicator_.rank() == 0 ? count_ : 0);
  }

  Communicator& communicator_;
  const int ranks_;
  const std::int64_t count_;
  const Tensor whole_;  // a block for each rank
  const Tensor other_;
  const Tensor part_;
  std::vector<Work> works_;
};

}  // namespace ringworld
