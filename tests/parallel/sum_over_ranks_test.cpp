// One sum over ranks, whatever part of the terms each of them has.
#include "parallel/sum_over_ranks.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include <gtest/gtest.h>

#include "runtime/transport.h"

namespace ringworld {
namespace {

// A tensor of magnitudes over 60 powers of two, cut into as many unequal parts as there are ranks.
TEST(SumOverRanks, IsTheSameBitsForEveryNumberOfRanks) {
  constexpr std::int64_t n = 4099;
  std::set<double> sums;
  std::mutex mutex;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    run_on_threads(ranks, [&](Transport& transport) {
      const auto backend = make_cpu_backend(Device::create({.poison = true}), /*threads=*/1);
      Communicator communicator(transport, *backend);
      std::vector<double> values;
      for (std::uint64_t i = 0; i < n; ++i) {
        values.push_back(std::ldexp(random_normal({.seed = 3}, i), static_cast<int>(i % 60) - 30));
      }
      const Tensor whole = backend->empty(DType::f32, {n}, Category::gradients);
      backend->upload_values(whole, values);
      const auto border = [&](int rank) { return n * rank * rank / (ranks * ranks); };
      const std::int64_t first = border(transport.rank());
      const Tensor part = whole.slice(first, border(transport.rank() + 1) - first);
      const WideSum sum =
          sum_over_ranks(communicator, backend->sum_of_squares(part), "sum of squares");
      const std::scoped_lock lock(mutex);
      sums.insert(sum.value());
    });
  }
  EXPECT_EQ(sums.size(), 1);
}

TEST(SumOverRanks, OneRanksInfinityIsEveryones) {
  run_on_threads(3, [](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({}), /*threads=*/1);
    Communicator communicator(transport, *backend);
    const WideSum own(transport.rank() == 1 ? HUGE_VAL : 1);
    EXPECT_FALSE(std::isfinite(sum_over_ranks(communicator, own, "sum").value()));
  });
}

}  // namespace
}  // namespace ringworld
