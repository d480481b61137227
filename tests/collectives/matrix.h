// Every operation, algorithm, dtype, reduction and count against a loop over the ranks' inputs. The
// inputs are small integers, so that sums are exact in every dtype whatever the order, and tests
// assert equality.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/communicator.h"

namespace ringworld {

// 0, 1, fewer than ranks, around the number of ranks, divisible or not, and a prime.
inline std::set<std::int64_t> matrix_counts(int ranks) {
  return {0, 1, 2, 3, ranks - 1, ranks, ranks + 1, 10, 1000, 1009};
}

// The algorithms with schedules that serve so many ranks.
inline std::vector<std::string> serving(Operation operation, int ranks) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.operation == operation && !algorithm.library &&
        algorithm.refuses(ranks).empty()) {
      names.push_back(algorithm.name);
    }
  }
  return names;
}

class Matrix {
 public:
  explicit Matrix(Communicator& communicator)
      : communicator_(communicator),
        backend_(communicator.backend()),
        ranks_(communicator.world_size()),
        rank_(communicator.rank()) {}

  // Everything, with every algorithm.
  void check(DType dtype, std::int64_t count, std::span<const ReduceOp> ops = all_reduce_ops) {
    const std::set roots{0, ranks_ / 2, ranks_ - 1};
    for (const ReduceOp op : ops) {
      with_every(Operation::all_reduce, [&] { check_all_reduce(dtype, op, count); });
      with_every(Operation::reduce_scatter, [&] { check_reduce_scatter(dtype, op, count); });
      for (const int root : roots) {
        with_every(Operation::reduce, [&] { check_reduce(dtype, op, root, count); });
      }
    }
    with_every(Operation::all_gather, [&] { check_all_gather(dtype, count); });
    with_every(Operation::all_to_all, [&] { check_all_to_all(dtype, count); });
    for (const int root : roots) {
      with_every(Operation::broadcast, [&] { check_broadcast(dtype, root, count); });
      with_every(Operation::gather, [&] { check_gather(dtype, root, count); });
      with_every(Operation::scatter, [&] { check_scatter(dtype, root, count); });
    }
  }

  template <typename Check>
  void with_every(Operation operation, const Check& check) {
    for (const std::string& name : serving(operation, ranks_)) {
      communicator_.use(operation, name);
      check();
    }
  }

  void check_all_reduce(DType dtype, ReduceOp op, std::int64_t count) {
    const std::vector<double> expected = reduced(dtype, op, 0, count);
    const Tensor x = tensor(dtype, inputs(rank_, 0, count));
    const Tensor out = backend_.empty(dtype, Shape{count}, Category::communication);
    communicator_.all_reduce(out, x, op, "all_reduce").wait();
    expect_equal(out, expected, "all_reduce", op);
    expect_equal(x, inputs(rank_, 0, count), "input of all_reduce", op);

    communicator_.all_reduce(x, x, op, "all_reduce in place").wait();
    expect_equal(x, expected, "all_reduce in place", op);
  }

  void check_reduce_scatter(DType dtype, ReduceOp op, std::int64_t count) {
    const std::vector<double> expected = reduced(dtype, op, rank_ * count, count);
    const Tensor x = tensor(dtype, inputs(rank_, 0, ranks_ * count));
    const Tensor out = backend_.empty(dtype, Shape{count}, Category::communication);
    communicator_.reduce_scatter(out, x, op, "reduce_scatter").wait();
    expect_equal(out, expected, "reduce_scatter", op);
    expect_equal(x, inputs(rank_, 0, ranks_ * count), "input of reduce_scatter", op);

    const Tensor own = x.slice(rank_ * count, count);
    communicator_.reduce_scatter(own, x, op, "reduce_scatter in place").wait();
    expect_equal(own, expected, "reduce_scatter in place", op);
  }

  void check_all_gather(DType dtype, std::int64_t count) {
    std::vector<double> expected;
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::vector<double> part = inputs(rank, 0, count);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const Tensor x = tensor(dtype, inputs(rank_, 0, count));
    const Tensor out = backend_.empty(dtype, Shape{ranks_ * count}, Category::communication);
    communicator_.all_gather(out, x, "all_gather").wait();
    expect_equal(out, expected, "all_gather");
    expect_equal(x, inputs(rank_, 0, count), "input of all_gather");

    const Tensor whole = backend_.empty(dtype, Shape{ranks_ * count}, Category::communication);
    const Tensor own = whole.slice(rank_ * count, count);
    backend_.copy(own, x);
    communicator_.all_gather(whole, own, "all_gather in place").wait();
    expect_equal(whole, expected, "all_gather in place");
  }

  void check_broadcast(DType dtype, int root, std::int64_t count) {
    const Tensor x = tensor(dtype, inputs(rank_, 0, count));
    communicator_.broadcast(x, root, "broadcast").wait();
    expect_equal(x, inputs(root, 0, count), "broadcast");
  }

  // Blocks of 0, `count`, 2 * `count`, ... elements, turned by `turn` ranks.
  Communicator::Counts uneven(std::int64_t count, int turn) const {
    Communicator::Counts counts;
    for (int rank = 0; rank < ranks_; ++rank) {
      counts.push_back((rank + turn) % ranks_ % 5 * count);
    }
    return counts;
  }

  void check_uneven_blocks(DType dtype, ReduceOp op, std::int64_t count) {
    const Communicator::Counts counts = uneven(count, 1);
    std::int64_t total = 0;
    std::int64_t own_first = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      own_first = rank == rank_ ? total : own_first;
      total += counts[rank];
    }
    with_every(Operation::reduce_scatter, [&] {
      const Tensor x = tensor(dtype, inputs(rank_, 0, total));
      const Tensor out = backend_.empty(dtype, Shape{counts[rank_]}, Category::communication);
      communicator_.reduce_scatter(out, x, counts, op, "uneven reduce_scatter").wait();
      expect_equal(out, reduced(dtype, op, own_first, counts[rank_]), "uneven reduce_scatter", op);
    });
    with_every(Operation::all_gather, [&] {
      std::vector<double> expected;
      for (int rank = 0; rank < ranks_; ++rank) {
        const std::vector<double> part = inputs(rank, 0, counts[rank]);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const Tensor x = tensor(dtype, inputs(rank_, 0, counts[rank_]));
      const Tensor out = backend_.empty(dtype, Shape{total}, Category::communication);
      communicator_.all_gather(out, x, counts, "uneven all_gather").wait();
      expect_equal(out, expected, "uneven all_gather");
    });
  }

  // Rank s sends (s + 2 d) % 4 * count elements to rank d, and nothing to or from the last rank.
  void check_all_to_all_with_counts(DType dtype, std::int64_t count) {
    const auto sends = [&](int from, int to) {
      const bool last = ranks_ > 1 && (from == ranks_ - 1 || to == ranks_ - 1);
      return last ? 0 : (from + 2 * to) % 4 * count;
    };
    Communicator::Counts send_counts;
    Communicator::Counts receive_counts;
    std::vector<double> sent;
    std::vector<double> expected;
    for (int peer = 0; peer < ranks_; ++peer) {
      send_counts.push_back(sends(rank_, peer));
      receive_counts.push_back(sends(peer, rank_));
      const std::vector<double> to = inputs(rank_, 100 * peer, send_counts.back());
      sent.insert(sent.end(), to.begin(), to.end());
      const std::vector<double> from = inputs(peer, 100 * rank_, receive_counts.back());
      expected.insert(expected.end(), from.begin(), from.end());
    }
    const Tensor x = tensor(dtype, sent);
    for (const std::string& name : serving(Operation::all_to_all, ranks_)) {
      if (find_algorithm(Operation::all_to_all, name).equal_chunks) {
        continue;
      }
      communicator_.use(Operation::all_to_all, name);
      const Tensor out = backend_.empty(dtype, Shape{static_cast<std::int64_t>(expected.size())},
                                        Category::communication);
      communicator_.all_to_all(out, receive_counts, x, send_counts, "counted").wait();
      expect_equal(out, expected, "all_to_all with counts");
    }
  }

  void check_reduce(DType dtype, ReduceOp op, int root, std::int64_t count) {
    const std::vector<double> expected = reduced(dtype, op, 0, count);
    const Tensor x = tensor(dtype, inputs(rank_, 0, count));
    const bool is_root = rank_ == root;
    const Tensor out =
        is_root ? backend_.empty(dtype, Shape{count}, Category::communication) : Tensor();
    communicator_.reduce(out, x, op, root, "reduce").wait();
    expect_equal(x, inputs(rank_, 0, count), "input of reduce", op);
    communicator_.reduce(x, x, op, root, "reduce in place").wait();
    if (is_root) {
      expect_equal(out, expected, "reduce", op);
      expect_equal(x, expected, "reduce in place", op);
    } else {
      expect_equal(x, inputs(rank_, 0, count), "input of reduce in place", op);
    }
  }

  void check_all_to_all(DType dtype, std::int64_t count) {
    std::vector<double> expected;
    for (int peer = 0; peer < ranks_; ++peer) {
      const std::vector<double> from = inputs(peer, rank_ * count, count);
      expected.insert(expected.end(), from.begin(), from.end());
    }
    const Tensor x = tensor(dtype, inputs(rank_, 0, ranks_ * count));
    const Tensor out = backend_.empty(dtype, Shape{ranks_ * count}, Category::communication);
    communicator_.all_to_all(out, x, "all_to_all").wait();
    expect_equal(out, expected, "all_to_all");
    expect_equal(x, inputs(rank_, 0, ranks_ * count), "input of all_to_all");
  }

  void check_gather(DType dtype, int root, std::int64_t count) {
    std::vector<double> expected;
    for (int peer = 0; peer < ranks_; ++peer) {
      const std::vector<double> from = inputs(peer, 0, count);
      expected.insert(expected.end(), from.begin(), from.end());
    }
    const Tensor x = tensor(dtype, inputs(rank_, 0, count));
    const Tensor out = rank_ == root
                           ? backend_.empty(dtype, Shape{ranks_ * count}, Category::communication)
                           : Tensor();
    communicator_.gather(out, x, root, "gather").wait();
    expect_equal(x, inputs(rank_, 0, count), "input of gather");
    if (rank_ == root) {
      expect_equal(out, expected, "gather");
    }
  }

  void check_scatter(DType dtype, int root, std::int64_t count) {
    const Tensor x = rank_ == root ? tensor(dtype, inputs(root, 0, ranks_ * count)) : Tensor();
    const Tensor out = backend_.empty(dtype, Shape{count}, Category::communication);
    communicator_.scatter(out, x, root, "scatter").wait();
    expect_equal(out, inputs(root, rank_ * count, count), "scatter");
    if (rank_ == root) {
      expect_equal(x, inputs(root, 0, ranks_ * count), "input of scatter");
      const Tensor own = x.slice(rank_ * count, count);
      communicator_.scatter(own, x, root, "scatter in place").wait();
    } else {
      communicator_.scatter(out, Tensor(), root, "scatter in place").wait();
    }
    expect_equal(out, inputs(root, rank_ * count, count), "scatter in place");
  }

 private:
  // -6 to 6, different from rank to rank and from chunk to chunk.
  static double input(int rank, std::int64_t i) {
    return static_cast<double>((rank * 7 + i * 3 + i / 13) % 13 - 6);
  }

  static std::vector<double> inputs(int rank, std::int64_t first, std::int64_t count) {
    std::vector<double> values;
    for (std::int64_t i = first; i < first + count; ++i) {
      values.push_back(input(rank, i));
    }
    return values;
  }

  std::vector<double> reduced(DType dtype, ReduceOp op, std::int64_t first,
                              std::int64_t count) const {
    std::vector<double> values = inputs(0, first, count);
    for (std::int64_t i = 0; i < count; ++i) {
      double& value = values[static_cast<std::size_t>(i)];
      for (int rank = 1; rank < ranks_; ++rank) {
        const double other = input(rank, first + i);
        value = op == ReduceOp::min   ? std::min(value, other)
                : op == ReduceOp::max ? std::max(value, other)
                                      : value + other;
      }
      if (op == ReduceOp::avg) {
        value = quotient(dtype, value, ranks_);
      }
    }
    return values;
  }

  // As computed in f32, or f64 for f64, and rounded once to the dtype.
  static double quotient(DType dtype, double sum, int ranks) {
    const float single = static_cast<float>(sum) / static_cast<float>(ranks);
    switch (dtype) {
      case DType::f64:
        return sum / ranks;
      case DType::f32:
        return single;
      case DType::bf16:
        return to_float(to_bf16(single));
      case DType::f16:
        return to_float(to_f16(single));
      default:
        return std::trunc(sum / ranks);
    }
  }

  Tensor tensor(DType dtype, const std::vector<double>& values) {
    const Tensor result = backend_.empty(dtype, Shape{static_cast<std::int64_t>(values.size())},
                                         Category::communication);
    backend_.upload_values(result, values);
    return result;
  }

  void expect_equal(const Tensor& tensor, const std::vector<double>& expected,
                    std::string_view what, ReduceOp op = ReduceOp::sum) {
    EXPECT_EQ(backend_.download_values(tensor), expected)
        << what << " (" << algorithms_in_use() << "), " << name_of(op) << ", "
        << name_of(tensor.dtype()) << ", " << tensor.elements() << " elements, rank " << rank_
        << " of " << ranks_;
  }

  std::string algorithms_in_use() const {
    std::string names;
    for (const Operation operation : all_operations) {
      names += (names.empty() ? "" : " ") + communicator_.algorithm(operation, Bytes(8)).name;
    }
    return names;
  }

  Communicator& communicator_;
  Backend& backend_;
  const int ranks_;
  const int rank_;
};

}  // namespace ringworld
