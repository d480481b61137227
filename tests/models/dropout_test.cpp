// Dropout's masks belong to the tokens of the run, not to micro-batches, ranks or memory; and
// attention may be computed again without changing a bit.
#include <algorithm>

#include "runtime/error.h"
#include "tests/models/support.h"

namespace ringworld {
namespace {

constexpr std::int64_t time = 5;
constexpr std::uint64_t seed = 21;

ModelOptions tiny_gpt(double dropout, bool recompute_attention = false) {
  return {.name = "gpt2-tiny",
          .layers = 2,
          .heads = 3,
          .width = 9,
          .vocabulary = 11,
          .context = 6,
          .dropout = dropout,
          .recompute_attention = recompute_attention};
}

// A model with memory; its batches are rows [first, first + rows) of one long batch.
struct Trained {
  explicit Trained(const ModelOptions& options, DType dtype = DType::f64)
      : model(make_model(options, dtype)) {
    bind(*backend, *model, /*seed=*/7);
  }

  Batch batch(std::int64_t first, std::int64_t rows, std::optional<std::uint64_t> dropout) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = first * time; i < (first + rows) * time; ++i) {
      tokens.push_back(static_cast<std::int32_t>(i * 7 % model->vocabulary()));
    }
    const Tensor uploaded = upload_ints(*backend, {rows, time}, tokens);
    return {.tokens = uploaded,
            .targets = uploaded,
            .dropout_seed = dropout,
            .first_token = first * time};
  }

  std::vector<double> embedded(const Batch& b) {
    Saved saved;
    return backend->download_values(model->units()[0]->forward(*backend, b, Tensor(), saved));
  }

  std::vector<std::vector<double>> gradients() {
    std::vector<std::vector<double>> all;
    for (const auto& p : model->parameters()) {
      all.push_back(backend->download_values(p->gradient));
    }
    return all;
  }

  std::unique_ptr<Backend> backend = make_test_backend();
  std::unique_ptr<Model> model;
};

std::size_t zeros_in(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::count(values.begin(), values.end(), 0.0));
}

TEST(Dropout, MasksDoNotDependOnTheMicroBatch) {
  Trained t(tiny_gpt(0.5));
  const std::vector<double> whole = t.embedded(t.batch(0, 4, seed));
  EXPECT_GT(zeros_in(whole), whole.size() / 4);
  for (const std::int64_t rows : {1, 2}) {
    std::vector<double> parts;
    for (std::int64_t first = 0; first < 4; first += rows) {
      const std::vector<double> part = t.embedded(t.batch(first, rows, seed));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole) << rows << " rows at a time";
  }
}

// The same tokens get another mask at another place, with another seed, and in another layer.
TEST(Dropout, MasksDifferByPlaceSeedAndLayer) {
  Trained t(tiny_gpt(0.5));
  Batch b = t.batch(0, 2, seed);
  const std::vector<double> here = t.embedded(b);
  EXPECT_EQ(t.embedded(b), here);
  b.first_token += 2 * time;
  EXPECT_NE(t.embedded(b), here);
  EXPECT_NE(t.embedded(t.batch(0, 2, seed + 1)), here);

  // Two layers of weights that are all zero but for a bias of one: their output is the mask.
  Trained mlp({.name = "mlp", .layers = 2, .width = 9, .vocabulary = 11, .dropout = 0.5});
  for (const auto& p : mlp.model->parameters()) {
    mlp.backend->fill(p->value, p->name.ends_with("c_proj.bias") ? 1 : 0);
  }
  const Tensor x = mlp.backend->zeros(DType::f64, {2, time, 9}, Category::activations);
  const Batch mlp_batch = mlp.batch(0, 2, seed);
  std::vector<std::vector<double>> masks;
  for (const std::size_t layer : {1u, 2u}) {
    Saved saved;
    masks.push_back(mlp.backend->download_values(
        mlp.model->units()[layer]->forward(*mlp.backend, mlp_batch, x, saved)));
    EXPECT_GT(zeros_in(masks.back()), 0U);
    EXPECT_LT(zeros_in(masks.back()), masks.back().size());
  }
  EXPECT_NE(masks[0], masks[1]);
}

TEST(Dropout, EvaluationDropsNothing) {
  for (const bool mlp : {false, true}) {
    ModelOptions options = tiny_gpt(0.5);
    ModelOptions plain = tiny_gpt(0);
    if (mlp) {
      options = {.name = "mlp", .vocabulary = 11, .dropout = 0.5};
      plain = {.name = "mlp", .vocabulary = 11};
    }
    Trained with(options);
    Trained without(plain);
    const auto losses = [](Trained& t, std::optional<std::uint64_t> dropout) {
      Saved saved;
      return forward(*t.backend, *t.model, t.batch(0, 2, dropout), saved);
    };
    EXPECT_EQ(losses(with, std::nullopt), losses(without, std::nullopt));
    EXPECT_EQ(losses(without, seed), losses(without, std::nullopt));
    EXPECT_NE(losses(with, seed), losses(without, seed));
  }
}

TEST(Dropout, IsRefusedWhenItIsNoProbability) {
  for (const double dropout : {-0.1, 1.0, 2.0, std::nan("")}) {
    EXPECT_THROW(make_model(tiny_gpt(dropout), DType::f32), UsageError) << dropout;
  }
}

TEST(RecomputeAttention, GivesTheSameBitsAndSavesLess) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const double dropout : {0.0, 0.3}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ", dropout " << dropout);
      Trained saving(tiny_gpt(dropout, false), dtype);
      Trained computing(tiny_gpt(dropout, true), dtype);
      const auto run = [](Trained& t) {
        return forward_backward(*t.backend, *t.model, t.batch(0, 3, seed));
      };
      EXPECT_EQ(run(computing), run(saving));
      EXPECT_EQ(computing.gradients(), saving.gradients());
      const auto saved = [](Trained& t) {
        Saved s;
        const Batch b = t.batch(0, 3, seed);
        forward(*t.backend, *t.model, b, s);
        return t.backend->device().ledger().held_in(Category::activations);
      };
      // attended C and a log-sum-exp for each head, in 2 layers
      EXPECT_EQ(saved(saving) - saved(computing),
                2 * 3 * time * (9 * size_of(dtype) + 3 * size_of(wide_dtype(dtype))));
    }
  }
}

TEST(RecomputeAttention, IsRefusedWithoutAttention) {
  EXPECT_THROW(make_model({.name = "mlp", .recompute_attention = true}, DType::f32), UsageError);
}

}  // namespace
}  // namespace ringworld
