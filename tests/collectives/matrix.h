// Every operation, dtype, reduction and count against a loop over the ranks' inputs. The inputs are
// small integers, so that sums are exact in every dtype whatever the order, and tests assert
// equality.
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

class Matrix {
 public:
  explicit Matrix(Communicator& communicator)
      : communicator_(communicator),
        backend_(communicator.backend()),
        ranks_(communicator.world_size()),
        rank_(communicator.rank()) {}

  void check(DType dtype, std::int64_t count) {
    for (const ReduceOp op : all_reduce_ops) {
      check_all_reduce(dtype, op, count);
      check_reduce_scatter(dtype, op, count);
    }
    check_all_gather(dtype, count);
    for (const int root : std::set{0, ranks_ / 2, ranks_ - 1}) {
      check_broadcast(dtype, root, count);
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
        << what << ", " << name_of(op) << ", " << name_of(tensor.dtype()) << ", "
        << tensor.elements() << " elements, rank " << rank_ << " of " << ranks_;
  }

  Communicator& communicator_;
  Backend& backend_;
  const int ranks_;
  const int rank_;
};

}  // namespace ringworld
