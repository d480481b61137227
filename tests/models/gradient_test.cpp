// What must hold of forward and backward without any reference: finite differences, accumulation,
// masked targets, and memory.
#include <algorithm>

#include "tests/models/support.h"

namespace ringworld {
namespace {

const ModelOptions tiny_models[] = {
    {.name = "gpt2",
     .layers = 2,
     .heads = 3,
     .width = 9,
     .hidden = 14,
     .vocabulary = 11,
     .context = 6},
    {.name = "gpt2",
     .layers = 2,
     .heads = 3,
     .width = 9,
     .hidden = 14,
     .vocabulary = 11,
     .context = 6,
     .dropout = 0.3,
     .recompute_attention = true},
    {.name = "llama-tiny",
     .layers = 2,
     .heads = 6,
     .width = 12,
     .hidden = 20,
     .vocabulary = 13,
     .context = 6,
     .kv_heads = 2},
    {.name = "llama-tiny",
     .layers = 2,
     .heads = 4,
     .width = 8,
     .hidden = 7,
     .vocabulary = 11,
     .context = 6,
     .kv_heads = 1,
     .tied = true,
     .recompute_attention = true},
    {.name = "mlp", .layers = 2, .width = 5, .hidden = 7, .vocabulary = 11},
    {.name = "mlp", .layers = 2, .width = 5, .hidden = 7, .vocabulary = 11, .dropout = 0.3},
};

class Gradient : public testing::TestWithParam<ModelOptions> {
 protected:
  static constexpr std::int64_t time = 5;

  void SetUp() override {
    bind(*backend_, *model_, /*seed=*/7);
    // GPT-2's small weights hardly bend anything; larger ones make every term of a gradient count.
    for (const auto& p : model_->parameters()) {
      const RandomKey key{8, Purpose::initial_weights, stream_of(p->name)};
      backend_->normal(p->value, key, 0, p->mean, 0.4);
    }
  }

  // `sequences` sequences of fixed random tokens from sequence `first` on; every seventh target is
  // masked.
  Batch batch(std::int64_t first, std::int64_t sequences) {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
    for (std::int64_t i = first * time; i < (first + sequences) * time; ++i) {
      const auto draw = [&](std::uint32_t stream) {
        const RandomKey key{9, Purpose::synthetic_data, stream};
        return static_cast<std::int32_t>(random_bits(key, static_cast<std::uint64_t>(i)) %
                                         static_cast<std::uint64_t>(model_->vocabulary()));
      };
      tokens.push_back(draw(0));
      targets.push_back(i % 7 == 3 ? -1 : draw(1));
    }
    const Shape shape{sequences, time};
    return {.tokens = upload_ints(*backend_, shape, tokens),
            .targets = upload_ints(*backend_, shape, targets),
            .gradient_factor = 0.25,
            .dropout_seed = 21,
            .first_token = first * time};
  }

  std::vector<std::vector<double>> gradients() {
    std::vector<std::vector<double>> all;
    for (const auto& p : model_->parameters()) {
      all.push_back(backend_->download_values(p->gradient));
    }
    return all;
  }

  std::unique_ptr<Backend> backend_ = make_test_backend();
  std::unique_ptr<Model> model_ = make_model(GetParam(), DType::f64);
};

// The loss's slope along a random direction d of one parameter is <gradient, d>. The slope is taken
// by central differences at two distances, extrapolated (Richardson), so its error is O(h^4).
// It is largest where a short row of an embedding meets an RMS norm, and there 1e-8 at h = 1e-4;
// rounding, 1e-16 / h times the loss, is far less.
TEST_P(Gradient, IsTheSlopeOfTheLossAlongARandomDirectionOfEveryParameter) {
  const Batch b = batch(0, 2);
  forward_backward(*backend_, *model_, b);
  for (const auto& p : model_->parameters()) {
    const Tensor direction = backend_->empty(DType::f64, p->shape, Category::workspace);
    backend_->normal(direction, {10, Purpose::synthetic_data, stream_of(p->name)}, 0, 0, 1);
    const std::vector<double> d = backend_->download_values(direction);
    const std::vector<double> start = backend_->download_values(p->value);
    const std::vector<double> gradient = backend_->download_values(p->gradient);

    const auto loss_at = [&](double distance) {
      std::vector<double> moved = start;
      for (std::size_t i = 0; i < moved.size(); ++i) {
        moved[i] += distance * d[i];
      }
      backend_->upload_values(p->value, moved);
      Saved saved;
      return b.gradient_factor * total(forward(*backend_, *model_, b, saved));
    };
    const auto slope = [&](double h) { return (loss_at(h) - loss_at(-h)) / (2 * h); };
    constexpr double h = 1e-4;
    const double measured = (4 * slope(h / 2) - slope(h)) / 3;
    backend_->upload_values(p->value, start);

    double expected = 0;
    double scale = 0;  // what the products add up to when nothing cancels
    for (std::size_t i = 0; i < d.size(); ++i) {
      expected += gradient[i] * d[i];
      scale += std::abs(gradient[i] * d[i]);
    }
    EXPECT_GT(scale, 1e-3) << p->name << " has no gradient to speak of";
    EXPECT_NEAR(measured, expected, 1e-7 * scale) << p->name;
  }
}

TEST_P(Gradient, OfTwoMicroBatchesAddsUpToThatOfOneBatch) {
  const double whole_loss = total(forward_backward(*backend_, *model_, batch(0, 3)));
  const std::vector<std::vector<double>> whole = gradients();

  zero_gradients(*backend_, *model_);
  const double parts_loss = total(forward_backward(*backend_, *model_, batch(0, 1))) +
                            total(forward_backward(*backend_, *model_, batch(1, 2)));
  EXPECT_NEAR(parts_loss, whole_loss, 1e-12 * whole_loss);
  const std::vector<std::vector<double>> parts = gradients();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_LE(relative_error(parts[i], whole[i]), 1e-12) << model_->parameters()[i]->name;
  }
}

// Two forwards before their backwards, first in first out: a pipeline does this. Nothing may be
// kept in a unit itself.
TEST_P(Gradient, MicroBatchesInFlightDoNotMix) {
  forward_backward(*backend_, *model_, batch(0, 1));
  forward_backward(*backend_, *model_, batch(1, 2));
  const std::vector<std::vector<double>> in_turn = gradients();

  zero_gradients(*backend_, *model_);
  const Batch first = batch(0, 1);
  const Batch second = batch(1, 2);
  Saved first_saved;
  Saved second_saved;
  forward(*backend_, *model_, first, first_saved);
  forward(*backend_, *model_, second, second_saved);
  backward(*backend_, *model_, first, first_saved);
  backward(*backend_, *model_, second, second_saved);
  EXPECT_EQ(gradients(), in_turn);
}

TEST_P(Gradient, MaskedTargetsCostNothingAndTrainNothing) {
  Batch masked = batch(0, 2);
  masked.targets = upload_ints(*backend_, {2, time}, std::vector<std::int32_t>(2 * time, -1));
  const std::vector<double> losses = forward_backward(*backend_, *model_, masked);
  EXPECT_EQ(losses, std::vector<double>(2 * time, 0.0));
  for (const auto& p : model_->parameters()) {
    EXPECT_EQ(backend_->sum_of_squares(p->gradient).value(), 0) << p->name;
  }
}

// A unit's input belongs to whoever ran forward: a checkpoint keeps it to run forward again.
TEST_P(Gradient, ForwardLeavesItsInputAsItIs) {
  const Batch b = batch(0, 2);
  Saved saved;
  Tensor x;
  for (const auto& unit : model_->units()) {
    const std::vector<double> before =
        x.defined() ? backend_->download_values(x) : std::vector<double>();
    const Tensor y = unit->forward(*backend_, b, x, saved);
    if (x.defined()) {
      EXPECT_EQ(backend_->download_values(x), before) << unit->name();
    }
    x = y;
  }
}

TEST_P(Gradient, AStepReturnsAllItsMemory) {
  const Batch b = batch(0, 2);
  const Ledger before = backend_->device().ledger();
  EXPECT_EQ(before.held_in(Category::activations), Bytes(0));
  forward_backward(*backend_, *model_, b);
  const Ledger after = backend_->device().ledger();
  EXPECT_EQ(after.held, before.held);
  EXPECT_GT(after.peak_in(Category::activations), Bytes(0));
}

// What a micro-batch in flight costs, to the byte: the closed form that stands at each unit.
TEST_P(Gradient, SavesExactlyWhatTheUnitsSay) {
  const ModelOptions& d = GetParam();
  const std::int64_t sequences = 2;
  const std::int64_t tokens = sequences * time;
  const std::int64_t head = d.width + d.vocabulary + 1;
  const std::int64_t attention = d.recompute_attention ? 0 : d.width + d.heads;
  const bool is_llama = d.kv_heads > 0;
  const std::int64_t qkv = is_llama ? d.width / d.heads * (d.heads + 2 * d.kv_heads) : 3 * d.width;
  const std::int64_t hidden = is_llama ? 2 * d.hidden : d.hidden;
  const std::int64_t layer =
      d.heads > 0 ? 2 * d.width + qkv + hidden + attention : d.width + hidden;  // for one token

  const Batch b = batch(0, sequences);
  Saved saved;
  forward(*backend_, *model_, b, saved);
  EXPECT_EQ(backend_->device().ledger().held_in(Category::activations),
            tokens * (d.layers * layer + head) * size_of(DType::f64));
}

INSTANTIATE_TEST_SUITE_P(Models, Gradient, testing::ValuesIn(tiny_models), [](const auto& tested) {
  std::string name = tested.param.name + (tested.param.dropout > 0 ? "_dropout" : "") +
                     (tested.param.tied ? "_tied" : "");
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace ringworld
