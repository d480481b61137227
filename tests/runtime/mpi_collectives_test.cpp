// The MPI library's own collectives behind their interface: out of place and in place, equal and
// uneven blocks, every dtype; and what they refuse.
#include "runtime/mpi_collectives.h"

#include <climits>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/mpi_main.h"

namespace ringworld {
namespace {

using Counts = std::vector<std::int64_t>;
using Values = std::vector<double>;

class MpiCollectives : public testing::Test {
 protected:
  MpiCollectives() {
    MPI_Comm_dup(MPI_COMM_WORLD, &world_);
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
    library_ = make_mpi_collectives(world_, [] { return std::chrono::seconds(30); });
    rank_ = mpi_test_transport().rank();
    ranks_ = mpi_test_transport().world_size();
  }
  ~MpiCollectives() override {
    library_.reset();
    MPI_Comm_free(&world_);
  }

  // Small integers, different from rank to rank and from element to element.
  static double value(int rank, std::int64_t i) {
    return static_cast<double>((rank * 5 + i * 3) % 11 - 5);
  }
  static Values values(int rank, std::int64_t first, std::int64_t count) {
    Values result;
    for (std::int64_t i = first; i < first + count; ++i) {
      result.push_back(value(rank, i));
    }
    return result;
  }
  Values reduced(ReduceOp op, std::int64_t first, std::int64_t count) const {
    Values result = values(0, first, count);
    for (int rank = 1; rank < ranks_; ++rank) {
      for (std::int64_t i = 0; i < count; ++i) {
        double& own = result[static_cast<std::size_t>(i)];
        const double other = value(rank, first + i);
        own = op == ReduceOp::min   ? std::min(own, other)
              : op == ReduceOp::max ? std::max(own, other)
                                    : own + other;
      }
    }
    return result;
  }
  // The ranks' values in order.
  static Values in_order(const Counts& counts) {
    Values result;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const Values part = values(static_cast<int>(rank), 0, counts[rank]);
      result.insert(result.end(), part.begin(), part.end());
    }
    return result;
  }

  Tensor empty(DType dtype, std::int64_t count) {
    return backend_->empty(dtype, Shape{count}, Category::communication);
  }
  Tensor tensor(DType dtype, const Values& content) {
    const Tensor result = empty(dtype, static_cast<std::int64_t>(content.size()));
    backend_->upload_values(result, content);
    return result;
  }
  Values content(const Tensor& tensor) { return backend_->download_values(tensor); }

  // Blocks of 4 for all; of 0, 3, 6, 0, 3, ... elements.
  std::vector<Counts> cuts() const {
    Counts uneven;
    for (int rank = 0; rank < ranks_; ++rank) {
      uneven.push_back(rank % 3 * 3);
    }
    return {Counts(static_cast<std::size_t>(ranks_), 4), uneven};
  }
  static std::int64_t total(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }
  std::int64_t own_count(const Counts& counts) const {
    return counts[static_cast<std::size_t>(rank_)];
  }
  std::int64_t own_first(const Counts& counts) const {
    return std::accumulate(counts.begin(), counts.begin() + rank_, std::int64_t{0});
  }

  std::unique_ptr<Backend> backend_ = make_cpu_backend(Device::create({.poison = true}), 1);
  MPI_Comm world_ = MPI_COMM_NULL;
  std::unique_ptr<LibraryCollectives> library_;
  int rank_ = 0;
  int ranks_ = 1;
};

constexpr DType reduced_dtypes[] = {DType::f64, DType::f32, DType::i64, DType::i32, DType::i8};

TEST_F(MpiCollectives, AllReduceAndReduce) {
  constexpr std::int64_t count = 9;
  const int root = ranks_ / 2;
  for (const DType dtype : reduced_dtypes) {
    for (const ReduceOp op : all_reduce_ops) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::string(name_of(op)));
      const Tensor x = tensor(dtype, values(rank_, 0, count));
      const Tensor out = empty(dtype, count);
      library_->all_reduce(out, x, op);
      EXPECT_EQ(content(out), reduced(op, 0, count));
      EXPECT_EQ(content(x), values(rank_, 0, count));
      library_->all_reduce(x, x, op);
      EXPECT_EQ(content(x), reduced(op, 0, count));

      const Tensor y = tensor(dtype, values(rank_, 0, count));
      library_->reduce(rank_ == root ? out : Tensor(), y, op, root);
      library_->reduce(rank_ == root ? y : Tensor(), y, op, root);
      if (rank_ == root) {
        EXPECT_EQ(content(out), reduced(op, 0, count));
      }
      EXPECT_EQ(content(y), rank_ == root ? reduced(op, 0, count) : values(rank_, 0, count));
    }
  }
}

TEST_F(MpiCollectives, ReduceScatter) {
  for (const Counts& counts : cuts()) {
    for (const ReduceOp op : all_reduce_ops) {
      const Values expected = reduced(op, own_first(counts), own_count(counts));
      const Tensor x = tensor(DType::f32, values(rank_, 0, total(counts)));
      const Tensor out = empty(DType::f32, own_count(counts));
      library_->reduce_scatter(out, x, counts, op);
      EXPECT_EQ(content(out), expected);
      EXPECT_EQ(content(x), values(rank_, 0, total(counts)));

      const Tensor own = x.slice(own_first(counts), own_count(counts));
      library_->reduce_scatter(own, x, counts, op);
      EXPECT_EQ(content(own), expected);
    }
  }
}

TEST_F(MpiCollectives, AllGatherGatherAndScatter) {
  for (const DType dtype : all_dtypes) {
    for (const Counts& counts : cuts()) {
      const Tensor x = tensor(dtype, values(rank_, 0, own_count(counts)));
      const Tensor out = empty(dtype, total(counts));
      const Tensor own = out.slice(own_first(counts), own_count(counts));
      library_->all_gather(out, x, counts);
      EXPECT_EQ(content(out), in_order(counts));
      backend_->fill(out, 0);
      backend_->copy(own, x);
      library_->all_gather(out, own, counts);
      EXPECT_EQ(content(out), in_order(counts));

      for (const int root : {0, ranks_ - 1}) {
        const bool is_root = rank_ == root;
        backend_->fill(out, 0);
        library_->gather(is_root ? out : Tensor(), x, counts, root);
        EXPECT_EQ(content(out), is_root ? in_order(counts) : Values(out.elements(), 0));
        backend_->fill(out, 0);
        backend_->copy(own, x);
        library_->gather(is_root ? out : Tensor(), is_root ? own : x, counts, root);
        EXPECT_EQ(is_root ? content(out) : in_order(counts), in_order(counts));

        const Tensor part = empty(dtype, own_count(counts));
        library_->scatter(part, is_root ? out : Tensor(), counts, root);
        EXPECT_EQ(content(part), values(rank_, 0, own_count(counts)));
        library_->scatter(is_root ? own : part, is_root ? out : Tensor(), counts, root);
        EXPECT_EQ(content(is_root ? own : part), values(rank_, 0, own_count(counts)));
      }
    }
  }
}

TEST_F(MpiCollectives, Broadcast) {
  for (const DType dtype : all_dtypes) {
    const int root = ranks_ - 1;
    const Tensor x = tensor(dtype, values(rank_, 0, 7));
    library_->broadcast(x, root);
    EXPECT_EQ(content(x), values(root, 0, 7));
  }
}

// Equal blocks; blocks that all differ; and such that rank 1 of 3 has equal ones when the others
// have not, which it cannot know.
TEST_F(MpiCollectives, AllToAll) {
  const auto check = [&](const std::function<std::int64_t(int from, int to)>& count, bool equal) {
    Counts send_counts;
    Counts receive_counts;
    Values sent;
    Values expected;
    for (int peer = 0; peer < ranks_; ++peer) {
      send_counts.push_back(count(rank_, peer));
      receive_counts.push_back(count(peer, rank_));
      const Values to = values(rank_, 100 * peer, send_counts.back());
      sent.insert(sent.end(), to.begin(), to.end());
      const Values from = values(peer, 100 * rank_, receive_counts.back());
      expected.insert(expected.end(), from.begin(), from.end());
    }
    const Tensor x = tensor(DType::bf16, sent);
    const Tensor out = empty(DType::bf16, total(receive_counts));
    equal ? library_->all_to_all(out, x)
          : library_->all_to_all(out, receive_counts, x, send_counts);
    EXPECT_EQ(content(out), expected);
  };
  check([](int, int) { return 3; }, true);
  check([](int from, int to) { return from + to; }, false);
  check([](int from, int to) { return from == 1 || to == 1 ? 2 : 4; }, false);
}

TEST_F(MpiCollectives, SixteenBitsTravelButAreNotReduced) {
  const Tensor x = tensor(DType::bf16, {1, 2});
  expect_error<UsageError>([&] { library_->all_reduce(x, x, ReduceOp::min); },
                           {"the mpi reference has no bf16 min"});
  expect_error<UsageError>([&] { library_->reduce(x, x, ReduceOp::max, 0); },
                           {"the mpi reference has no bf16 max"});
}

// Refused before anything is read, so that no page of this is ever there.
TEST_F(MpiCollectives, CountsBeyondAnIntAreRefused) {
  const auto backend = make_cpu_backend(Device::create({.poison = false}), 1);
  const Tensor x =
      backend->empty(DType::i8, Shape{std::int64_t{INT_MAX} + 1}, Category::communication);
  expect_error<CommunicationError>([&] { library_->all_reduce(x, x, ReduceOp::sum); },
                                   {"2147483648", "2147483647", "MPI_Allreduce"});
}

TEST_F(MpiCollectives, Barrier) {
  for (int i = 0; i < 3; ++i) {
    library_->barrier();
  }
}

}  // namespace
}  // namespace ringworld
