// The collectives between real processes: the matrix of operations, dtypes and reductions, a buffer
// of many segments, and calls under way while the rank computes.
#include <gtest/gtest.h>

#include "tests/collectives/matrix.h"
#include "tests/support/mpi_main.h"

namespace ringworld {
namespace {

class Mpi : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_cpu_backend(Device::create({.poison = true}), 1);
  Communicator communicator_{
      mpi_test_transport(), *backend_, {.timeout = std::chrono::seconds(30)}};
};

TEST_F(Mpi, EveryAlgorithmDTypeAndReduction) {
  Matrix matrix(communicator_);
  for (const DType dtype : all_dtypes) {
    matrix.check(dtype, 10);
  }
}

TEST_F(Mpi, EveryAlgorithmAndCount) {
  constexpr ReduceOp average[] = {ReduceOp::avg};
  Matrix matrix(communicator_);
  for (const std::int64_t count : matrix_counts(communicator_.world_size())) {
    matrix.check(DType::f32, count, average);
    matrix.check_uneven_blocks(DType::bf16, ReduceOp::sum, count);
    matrix.check_all_to_all_with_counts(DType::f32, count);
  }
}

TEST_F(Mpi, ALargeBufferTravelsInSegments) {
  constexpr std::int64_t count = (2 << 20) + 1;  // 8 MiB and 4 bytes
  Matrix matrix(communicator_);
  matrix.with_every(Operation::all_reduce,
                    [&] { matrix.check_all_reduce(DType::f32, ReduceOp::sum, count); });
}

TEST_F(Mpi, CallsRunWhileTheRankComputes) {
  constexpr int calls = 8;
  constexpr std::int64_t count = 10'000;
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < calls; ++i) {
    const Tensor x = backend_->empty(DType::f64, Shape{count}, Category::communication);
    backend_->fill(x, communicator_.rank() + i);
    tensors.push_back(x);
    works.push_back(communicator_.all_reduce(x, x, ReduceOp::sum, "under way"));
  }
  const Tensor local = backend_->empty(DType::f64, Shape{count}, Category::workspace);
  backend_->fill(local, 0.5);
  EXPECT_EQ(backend_->sum(local), 0.5 * count);
  const int ranks = communicator_.world_size();
  for (int i = calls - 1; i >= 0; --i) {
    works[i].wait();
    EXPECT_EQ(backend_->download_values(tensors[i]),
              std::vector<double>(count, ranks * (ranks - 1) / 2 + ranks * i));
  }
}

TEST_F(Mpi, CountsTheRanksOfThisMachine) {
  EXPECT_EQ(mpi_test_transport().local_ranks(), communicator_.world_size());
}

TEST_F(Mpi, DescribesTheLibraryInOneLine) {
  const std::string description = communicator_.description();
  EXPECT_FALSE(description.empty());
  EXPECT_LT(description.size(), 60u);
  EXPECT_EQ(description.find_first_of("\n\t"), std::string::npos);
}

}  // namespace
}  // namespace ringworld
