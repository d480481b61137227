// FLOPs by every convention, against published counts.
#include "planner/flops.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/validate.h"

namespace ringworld {
namespace {

// Four sequences of 8192 tokens through Llama-2-7B: 10^12 FLOPs.
TEST(Flops, OfLlama2) {
  const Transformer& model = find_transformer("llama-2-7b");
  const double tokens = 4 * 8192 / 1e12;
  const TokenFlops flops = token_flops(model, 8192);
  EXPECT_NEAR(tokens * (flops.weights + flops.head + flops.norms), 1299.06, 0.005);
  EXPECT_NEAR(tokens * (flops.weights + flops.head), 1299.00, 0.01);
  EXPECT_NEAR(tokens * flops.attention, 422.21, 0.005);
  EXPECT_NEAR(tokens * model_flops_per_token(model, 8192, FlopConvention::parameters), 1299.06,
              0.005);
  EXPECT_NEAR(tokens * (model_flops_per_token(model, 8192, FlopConvention::causal) - flops.weights -
                        flops.head),
              211.11, 0.005);
}

// Recomputation is hardware FLOPs and no model FLOPs.
TEST(Flops, RecomputationCountsForTheHardwareAlone) {
  const Transformer& model = find_transformer("llama-3-8b");
  const double without = hardware_flops_per_token(model, 8192, Recompute::none, true);
  EXPECT_EQ(without, model_flops_per_token(model, 8192, FlopConvention::causal));
  const TokenFlops flops = token_flops(model, 8192);
  EXPECT_DOUBLE_EQ(hardware_flops_per_token(model, 8192, Recompute::selective, true) - without,
                   flops.attention / 2 / 3);
  EXPECT_DOUBLE_EQ(hardware_flops_per_token(model, 8192, Recompute::full, true) - without,
                   (flops.weights + flops.attention / 2) / 3);
}

// Equation 3 is the count of every matrix product of a GPT, four passes through layers, three
// through the head.
TEST(Flops, MegatronsFormulasAreTheMatrixProductsOfAGpt) {
  for (const char* name : {"megatron-1.7b", "gpt3-175b", "megatron-1t"}) {
    const Transformer& model = find_transformer(name);
    const double all = model_flops_per_token(model, 2048, FlopConvention::matmul);
    EXPECT_NEAR(model_flops_per_token(model, 2048, FlopConvention::megatron) / all, 1, 1e-12);
    EXPECT_NEAR(model_flops_per_token(model, 2048, FlopConvention::megatron_full) /
                    hardware_flops_per_token(model, 2048, Recompute::full, false),
                1, 1e-12);
  }
}

// 37B of 671B parameters are active; an expert that no token meets has no FLOPs.
TEST(Flops, OfExpertsOnlyTheActiveCount) {
  const Transformer& model = find_transformer("deepseek-v3");
  const double each = model_flops_per_token(model, 1, FlopConvention::parameters) / 6;
  EXPECT_GT(each, 35e9);
  EXPECT_LT(each, 38e9);
  Transformer more = model;
  more.experts->count *= 2;
  const double router = 6.0 * 256 * 7168 * 58;
  EXPECT_NEAR(token_flops(more, 1).weights - token_flops(model, 1).weights, router, 1);
}

}  // namespace
}  // namespace ringworld
