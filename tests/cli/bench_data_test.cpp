// The values of a benchmark: what must come out is what a loop over the ranks' values gives, and
// what differs is counted.
#include "cli/bench_data.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

// Longer than two periods, and from within one.
constexpr std::int64_t count = 10'000;
constexpr std::int64_t first = 777;

class BenchDataTest : public testing::Test {
 protected:
  Tensor written(const BenchData& data, DType dtype, int source, std::int64_t from) {
    const Tensor tensor = backend_->empty(dtype, Shape{count}, Category::workspace);
    data.write(tensor, source, from);
    return tensor;
  }

  std::unique_ptr<Backend> backend_ = make_cpu_backend(Device::create({}), 1);
};

// As the backend reduces: in the dtype's own arithmetic, 16 bits in f32.
TEST_F(BenchDataTest, TheReductionIsThatOfTheRanksValues) {
  for (const int ranks : {1, 2, 3, 8, 64}) {
    for (const DType dtype : all_dtypes) {
      for (const ReduceOp op : all_reduce_ops) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::string(name_of(dtype)) + " " +
                     std::string(name_of(op)));
        const BenchData data(*backend_, dtype, op, ranks);
        const bool half = dtype == DType::bf16 || dtype == DType::f16;
        const DType wide = half ? DType::f32 : dtype;
        const auto widened = [&](const Tensor& x) {
          const Tensor result = backend_->empty(wide, Shape{count}, Category::workspace);
          half ? backend_->cast(result, x) : backend_->copy(result, x);
          return result;
        };
        const Tensor sum = widened(written(data, dtype, 0, first));
        for (int rank = 1; rank < ranks; ++rank) {
          backend_->combine(sum, widened(written(data, dtype, rank, first)), op);
        }
        if (op == ReduceOp::avg) {
          backend_->divide(sum, ranks);
        }
        const Tensor result = backend_->empty(dtype, Shape{count}, Category::workspace);
        half ? backend_->cast(result, sum) : backend_->copy(result, sum);
        EXPECT_EQ(data.count_wrong(result, BenchData::reduction, first), 0);
      }
    }
  }
}

TEST_F(BenchDataTest, EveryElementThatDiffersCounts) {
  const BenchData data(*backend_, DType::bf16, ReduceOp::sum, 4);
  const Tensor x = written(data, DType::bf16, 2, first);
  EXPECT_EQ(data.count_wrong(x, 2, first), 0);
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{4000}, count - 1}) {
    backend_->fill(x.slice(at, 1), 111);
  }
  EXPECT_EQ(data.count_wrong(x, 2, first), 3);
}

TEST_F(BenchDataTest, ValuesDifferBetweenRanksAndPlaces) {
  const BenchData data(*backend_, DType::f32, ReduceOp::sum, 20);
  const Tensor x = written(data, DType::f32, 3, first);
  for (int rank = 0; rank < 20; ++rank) {
    if (rank != 3) {
      EXPECT_GT(data.count_wrong(x, rank, first), count / 2) << rank;
    }
  }
  // Another period, a block of any size further, one element further.
  for (const std::int64_t shift : {4093, 2 * 4093, 4096, 1000, 1}) {
    EXPECT_GT(data.count_wrong(x, 3, first + shift), count / 2) << shift;
  }
}

// A sum that avg divides is no sum of equal values, and two ranks' contributions are not the same.
TEST_F(BenchDataTest, AMeanIsNoRanksValue) {
  const BenchData data(*backend_, DType::i32, ReduceOp::avg, 5);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_GT(data.count_wrong(written(data, DType::i32, rank, 0), BenchData::reduction, 0),
              count / 2);
  }
}

}  // namespace
}  // namespace ringworld
