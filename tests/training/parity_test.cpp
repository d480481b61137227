// The oracle itself, on threads as ranks: it passes what is right and finds what was planted.
#include "training/parity.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/backend.h"
#include "tests/support/expect_error.h"
#include "training/token_stream.h"

namespace ringworld {
namespace {

ParityOptions options_for(int ranks, int accumulation, DType precision) {
  return {.training = {.model = {.name = "gpt2-tiny",
                                 .layers = 2,
                                 .heads = 2,
                                 .width = 8,
                                 .vocabulary = 11,
                                 .context = 6},
                       .precision = precision,
                       .optimizer = {.kind = precision == DType::f64 ? OptimizerKind::adamw
                                                                     : OptimizerKind::sgd}},
          .learning_rate = 0.01,
          .batches = plan_batches(2 * ranks * accumulation, 2, ranks),
          .bound = precision == DType::f64 ? 1e-12 : 1e-5};
}

// Rank 0's result; that all ranks return the same is checked.
ParityResult check(int ranks, const ParityOptions& options) {
  std::vector<ParityResult> results(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    const auto backend = make_test_backend();
    Communicator communicator(transport, *backend);
    const TokenDataset data = whole_dataset(TokenStream::synthetic(11, 1000, 3), 6);
    results[static_cast<std::size_t>(transport.rank())] =
        check_parity(options, data, *backend, communicator, [](std::shared_ptr<Device> device) {
          return make_cpu_backend(std::move(device), /*threads=*/1);
        });
  });
  for (const ParityResult& result : results) {
    EXPECT_EQ(result.largest.relative_error, results[0].largest.relative_error);
    EXPECT_EQ(result.broken.size(), results[0].broken.size());
    EXPECT_EQ(result.bytes_sent, results[0].bytes_sent);
  }
  return results[0];
}

TEST(Parity, DdpEqualsASingleProcess) {
  for (const int ranks : {1, 2, 3}) {
    for (const int accumulation : {1, 3}) {
      for (const DType precision : {DType::f64, DType::f32}) {
        const ParityResult result = check(ranks, options_for(ranks, accumulation, precision));
        EXPECT_TRUE(result.passed()) << result.largest.what << " " << result.largest.relative_error;
        EXPECT_EQ(result.steps_compared, 3);
        EXPECT_EQ(result.comparisons, 3 * (1 + 2 * result.tensors));
        EXPECT_EQ(result.bytes_sent, result.bytes_expected);
        EXPECT_EQ(result.bytes_expected.value > 0, ranks > 1);
      }
    }
  }
}

// The control takes whole batches in one piece: masks belong to the tokens, wherever they are.
TEST(Parity, DdpEqualsASingleProcessWithDropout) {
  for (const int ranks : {1, 2, 3}) {
    for (const int accumulation : {1, 3}) {
      ParityOptions options = options_for(ranks, accumulation, DType::f64);
      options.training.model.dropout = 0.2;
      const ParityResult result = check(ranks, options);
      EXPECT_TRUE(result.passed()) << result.largest.what << " " << result.largest.relative_error;
    }
  }
}

TEST(Parity, OneRankOnTheSameBatchIsBitEqual) {
  EXPECT_TRUE(check(1, options_for(1, 1, DType::f32)).bit_equal);
}

TEST(Parity, FindsAPlantedFaultOnItsRankWithItsRatio) {
  for (const int rank : {0, 2}) {
    ParityOptions options = options_for(3, 1, DType::f64);
    options.plant = Plant{.tensor = "h.1.mlp.c_fc.weight", .factor = 2, .rank = rank};
    const ParityResult result = check(3, options);
    EXPECT_FALSE(result.passed());
    ASSERT_EQ(result.broken.size(), 1u);
    EXPECT_EQ(result.broken[0].what, "gradient of h.1.mlp.c_fc.weight");
    EXPECT_EQ(result.broken[0].rank, rank);
    EXPECT_EQ(result.broken[0].step, 1);
    EXPECT_NEAR(result.broken[0].ratio, 2, 1e-9);
  }
}

TEST(Parity, ATensorThatIsNotFiniteBreaksTheBound) {
  ParityOptions options = options_for(2, 1, DType::f64);
  options.plant =
      Plant{.tensor = "ln_f.bias", .factor = std::numeric_limits<double>::quiet_NaN(), .rank = 1};
  const ParityResult result = check(2, options);
  ASSERT_FALSE(result.broken.empty());
  EXPECT_EQ(result.broken[0].what, "gradient of ln_f.bias");
}

TEST(Parity, RefusesAPlantThatIsNowhere) {
  ParityOptions options = options_for(1, 1, DType::f64);
  options.plant = Plant{.tensor = "h.1.mlp.c_fc.wieght", .factor = 2, .rank = 0};
  expect_error<UsageError>([&] { check(1, options); }, {"wieght", "h.1.mlp.c_fc.weight"});
  options.plant = Plant{.tensor = "wte.weight", .factor = 2, .rank = 1};
  expect_error<UsageError>([&] { check(1, options); }, {"rank 1"});
}

}  // namespace
}  // namespace ringworld
