// The training loop on threads as ranks: what one step does, and what it says it did.
#include "training/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/micro_batch.h"
#include "runtime/error.h"
#include "tests/parallel/toy_model.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

constexpr std::int64_t sequence = 7;
constexpr std::int64_t vocabulary = 11;

std::unique_ptr<Model> tiny_gpt() {
  return make_model({.name = "gpt2-tiny",
                     .layers = 2,
                     .heads = 3,
                     .width = 15,
                     .vocabulary = vocabulary,
                     .context = sequence},
                    DType::f64);
}

// A model of one weight (3). Each token's loss is `loss`, and each micro-batch's gradient is
// `gradient` in every element, before its factor.
std::unique_ptr<Model> toy(double loss, double gradient) {
  auto model = std::make_unique<Model>("toy", DType::f64, vocabulary, 0);
  Parameter* weight = model->add_parameter({.name = "weight", .shape = {3}, .deviation = 1});
  model->add_unit(std::make_unique<ToyUnit>(
      "unit", std::vector{weight},
      [=](Backend& backend, const Batch& batch) {
        const Tensor losses = no_loss(backend, batch);
        backend.fill(losses, loss);
        return losses;
      },
      [=](Backend& backend, const Batch& batch) {
        add_gradient(backend, *weight, batch, gradient);
      }));
  return model;
}

// Samples of random tokens; those for validation are others than those for training.
Datasets random_data(std::int64_t train, std::int64_t validation) {
  const auto stream =
      TokenStream::synthetic(vocabulary, (train + validation) * sequence + 1, /*seed=*/3);
  return {TokenDataset(stream, sequence, 0, train),
          TokenDataset(stream, sequence, train, validation)};
}

// A trainer with everything it needs, on a thread. The optimizer is plain gradient descent.
struct TrainingRank {
  TrainingRank(Transport& transport, std::unique_ptr<Model> its_model, const Datasets& its_data,
               const TrainerOptions& options, const std::string& its_strategy = "ddp")
      : data(its_data),
        communicator(transport, *backend),
        model(std::move(its_model)),
        strategy(make_strategy({.name = its_strategy}, *model, *backend, communicator, /*seed=*/1)),
        optimizer(make_optimizer({.kind = OptimizerKind::sgd, .momentum = 0, .weight_decay = 0},
                                 strategy->shards(), *backend)),
        mesh(communicator),
        stage(static_cast<int>(model->units().size())),
        trainer(*model, *backend, *strategy, *optimizer, mesh, stage, data, options) {}

  std::vector<double> weights() {
    return backend->download_values(strategy->full_value(*model->parameters()[0]));
  }

  Datasets data;
  std::unique_ptr<Backend> backend =
      make_cpu_backend(Device::create({.poison = true}), /*threads=*/1);
  Communicator communicator;
  std::unique_ptr<Model> model;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<Optimizer> optimizer;
  Mesh mesh;
  Stage stage;
  Trainer trainer;
};

constexpr LearningRateOptions constant_rate{.peak = 0.5,
                                            .schedule = LearningRateSchedule::constant};

// The mean loss over the first `samples` of the data set, one after the other on one device.
double mean_loss(TrainingRank& rank, const TokenDataset& data, std::int64_t samples) {
  double sum = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t sample[] = {i};
    sum += evaluate(*rank.model, *rank.backend, *rank.strategy, rank.stage,
                    upload(*rank.backend, read_batch(data, sample)));
  }
  return sum / static_cast<double>(samples * sequence);
}

// Two ranks with two micro-batches of two sequences each: 8 sequences a step.
const BatchPlan two_ranks = plan_batches(8, 2, 2);
constexpr std::int64_t tokens_per_step = 8 * sequence;

// The gradient of the mean loss of such a step, when every micro-batch's is `gradient`.
double mean_gradient(double gradient) {
  return gradient * 4 / static_cast<double>(tokens_per_step);
}

void expect_moved(const std::vector<double>& before, const std::vector<double>& after,
                  double distance) {
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(before[i] - after[i], distance, 1e-12 * std::abs(distance)) << i;
  }
}

TEST(Trainer, StepsCountFromOneAndTokensAddUp) {
  run_on_threads(2, [](Transport& transport) {
    TrainingRank rank(transport, toy(/*loss=*/1.25, /*gradient=*/1), random_data(20, 0),
                      {.batches = two_ranks, .learning_rate = constant_rate});
    for (std::int64_t step = 1; step <= 4; ++step) {
      const StepMetrics metrics = rank.trainer.step();
      EXPECT_EQ(metrics.step, step);
      EXPECT_EQ(metrics.tokens, step * tokens_per_step);
      EXPECT_NEAR(metrics.loss, 1.25, 1e-12);
      EXPECT_FALSE(metrics.validation_loss.has_value());
    }
  });
}

TEST(Trainer, TrafficIsOfTheStepAlone) {
  run_on_threads(2, [](Transport& transport) {
    TrainingRank rank(transport, tiny_gpt(), random_data(20, 5),
                      {.batches = two_ranks, .learning_rate = constant_rate});
    for (int step = 1; step <= 3; ++step) {
      const Traffic before = rank.communicator.traffic();
      ASSERT_GT(before.calls, 0);  // from the start, and from the validations between the steps
      const StepMetrics metrics = rank.trainer.step();
      const Traffic sent = rank.communicator.traffic() - before;
      EXPECT_EQ(metrics.collectives, sent.calls);
      EXPECT_EQ(metrics.bytes_sent, sent.bytes_sent.value);
      // Between two ranks each sends half of what a gradient reduction takes.
      EXPECT_GE(2 * metrics.bytes_sent, rank.strategy->expected_traffic(1).value);
      rank.trainer.validate();
    }
  });
}

TEST(Trainer, ValidationCountsToNoStep) {
  run_on_threads(2, [](Transport& transport) {
    TrainingRank rank(
        transport, tiny_gpt(), random_data(20, 5),
        {.batches = two_ranks, .learning_rate = constant_rate, .validation_interval = 2});
    const StepMetrics first = rank.trainer.step();
    EXPECT_FALSE(first.validation_loss.has_value());
    const StepMetrics second = rank.trainer.step();
    ASSERT_TRUE(second.validation_loss.has_value());
    EXPECT_EQ(*second.validation_loss, rank.trainer.validate());
    const StepMetrics third = rank.trainer.step();
    EXPECT_FALSE(third.validation_loss.has_value());
    for (const StepMetrics& metrics : {second, third}) {
      EXPECT_EQ(metrics.bytes_sent, first.bytes_sent);
      EXPECT_EQ(metrics.collectives, first.collectives);
    }
    EXPECT_EQ(third.tokens, 3 * tokens_per_step);
  });
}

TEST(Trainer, PeaksAreOfTheStepAlone) {
  run_on_threads(2, [](Transport& transport) {
    TrainingRank rank(transport, tiny_gpt(), random_data(20, 0),
                      {.batches = two_ranks, .learning_rate = constant_rate});
    constexpr Bytes large(8 << 20);  // far more than the model takes
    for (int step = 1; step <= 2; ++step) {
      rank.backend->device().allocate(large, Category::activations);
      ASSERT_GE(rank.backend->device().ledger().total_peak, large);
      const Ledger ledger = rank.trainer.step().ledger;
      EXPECT_LT(ledger.total_peak, large);
      EXPECT_LT(ledger.peak_in(Category::activations), large);
      // But what the step itself held and gave back is in them.
      EXPECT_GT(ledger.peak_in(Category::activations), ledger.held_in(Category::activations));
      EXPECT_GT(ledger.total_peak, ledger.total_held);
    }
  });
}

TEST(Trainer, ClippedGradientsMoveTheParametersByTheClipNorm) {
  run_on_threads(2, [](Transport& transport) {
    constexpr double clip_norm = 0.25;
    TrainingRank rank(
        transport, toy(/*loss=*/1, /*gradient=*/140), random_data(20, 0),
        {.batches = two_ranks, .learning_rate = constant_rate, .clip_norm = clip_norm});
    const double gradient = mean_gradient(140);
    const double norm = gradient * std::sqrt(3.0);
    const std::vector<double> before = rank.weights();
    const StepMetrics metrics = rank.trainer.step();
    EXPECT_NEAR(metrics.grad_norm, norm, 1e-12 * norm);  // as it was before clipping
    expect_moved(before, rank.weights(), constant_rate.peak * clip_norm / (norm + 1e-6) * gradient);
  });
}

// A norm below the limit, and no limit.
TEST(Trainer, GradientsThatNeedNoClippingAreLeft) {
  for (const double clip_norm : {1e3, 0.0}) {
    run_on_threads(2, [&](Transport& transport) {
      TrainingRank rank(
          transport, toy(/*loss=*/1, /*gradient=*/140), random_data(20, 0),
          {.batches = two_ranks, .learning_rate = constant_rate, .clip_norm = clip_norm});
      const std::vector<double> before = rank.weights();
      rank.trainer.step();
      expect_moved(before, rank.weights(), constant_rate.peak * mean_gradient(140));
    });
  }
}

TEST(Trainer, WarmUpBeginsWithTheFirstStep) {
  run_on_threads(2, [](Transport& transport) {
    constexpr std::int64_t warmup = 4;
    TrainingRank rank(transport, toy(/*loss=*/1, /*gradient=*/14), random_data(20, 0),
                      {.batches = two_ranks,
                       .learning_rate = {.peak = 0.5,
                                         .warmup_steps = warmup,
                                         .schedule = LearningRateSchedule::constant},
                       .clip_norm = 0});
    for (std::int64_t step = 1; step <= warmup + 2; ++step) {
      const double rate = 0.5 * static_cast<double>(std::min(step, warmup)) / warmup;
      const std::vector<double> before = rank.weights();
      EXPECT_DOUBLE_EQ(rank.trainer.step().learning_rate, rate) << "step " << step;
      expect_moved(before, rank.weights(), rate * mean_gradient(14));
    }
  });
}

// One rank's loss or gradient spoils the step of all, and each is found without the other.
TEST(Trainer, AStepThatIsNotFiniteThrowsAndLeavesTheParameters) {
  for (const bool spoil_loss : {true, false}) {
    SCOPED_TRACE(spoil_loss ? "loss" : "gradient");
    run_on_threads(2, [&](Transport& transport) {
      const bool spoilt = transport.rank() == 1;
      TrainingRank rank(transport,
                        toy(spoilt && spoil_loss ? nan : 1, spoilt && !spoil_loss ? nan : 1),
                        random_data(20, 0), {.batches = two_ranks, .learning_rate = constant_rate});
      const std::vector<double> before = rank.weights();
      EXPECT_THROW(rank.trainer.step(), NumericalError);
      EXPECT_EQ(rank.weights(), before);
    });
  }
}

// What four ranks with a toy model do while rank 1's gradient is infinite in the first `bad`
// steps.
struct Overflows {
  std::vector<StepMetrics> steps;
  std::vector<std::vector<double>> weights;  // before the first step, and after each
  LossScaler::State scaler;
};

Overflows train_through_overflows(Transport& transport, int bad, int steps,
                                  const TrainerOptions& options, double loss = 1,
                                  const std::string& strategy = "ddp") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  auto step = std::make_shared<int>(0);
  auto model = std::make_unique<Model>("toy", DType::f32, vocabulary, 0);
  Parameter* weight = model->add_parameter({.name = "weight", .shape = {3}, .deviation = 1});
  model->add_unit(std::make_unique<ToyUnit>(
      "unit", std::vector{weight},
      [=](Backend& backend, const Batch& batch) {
        const Tensor losses = no_loss(backend, batch);
        backend.fill(losses, loss);
        return losses;
      },
      [=, rank = transport.rank()](Backend& backend, const Batch& batch) {
        add_gradient(backend, *weight, batch, rank == 1 && *step < bad ? infinity : 3);
      }));
  TrainingRank rank(transport, std::move(model), random_data(200, 0), options, strategy);
  Overflows seen{.steps = {}, .weights = {rank.weights()}, .scaler = {}};
  for (; *step < steps; ++*step) {
    seen.steps.push_back(rank.trainer.step());
    seen.weights.push_back(rank.weights());
    seen.scaler = rank.trainer.loss_scaler().state();
  }
  return seen;
}

TrainerOptions scaled(LossScalerOptions scaling, double clip_norm = 0) {
  return {.batches = plan_batches(8, 1, 4),
          .learning_rate = constant_rate,
          .clip_norm = clip_norm,
          .loss_scaling = scaling};
}

TEST(Trainer, AnOverflowOnOneRankSkipsTheStepOnAll) {
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
    run_on_threads(4, [&](Transport& transport) {
      SCOPED_TRACE(strategy);
      const LossScalerOptions scaling{.mode = LossScaling::dynamic, .initial_scale = 1024};
      const Overflows seen =
          train_through_overflows(transport, 3, 5, scaled(scaling), /*loss=*/1, strategy);
      const double scales[] = {1024, 1024, 512, 256, 256};  // the first overflow is tolerated
      for (std::size_t i = 0; i < 5; ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(seen.steps[i].skipped, i < 3);
        EXPECT_EQ(seen.steps[i].loss_scale, scales[i]);
        EXPECT_EQ(seen.steps[i].step, static_cast<std::int64_t>(i) + 1);
        EXPECT_EQ(seen.steps[i].tokens,
                  i < 3 ? 0 : static_cast<std::int64_t>(i - 2) * 8 * sequence);  // trained
        EXPECT_EQ(seen.weights[i + 1] == seen.weights[i], i < 3);
      }
      EXPECT_EQ(seen.scaler, (LossScaler::State{.scale = 256, .good_steps = 2}));
    });
  }
}

// Powers of two scale without rounding, so the steps are the same bits with and without.
TEST(Trainer, TheScaleLeavesNormAndUpdateAsTheyWere) {
  for (const double clip_norm : {0.0, 0.125}) {
    run_on_threads(4, [&](Transport& transport) {
      const Overflows plain = train_through_overflows(transport, 0, 2, scaled({}, clip_norm));
      const Overflows fixed = train_through_overflows(
          transport, 0, 2, scaled({.mode = LossScaling::fixed, .initial_scale = 4096}, clip_norm));
      EXPECT_EQ(fixed.weights, plain.weights);
      EXPECT_EQ(fixed.steps[1].grad_norm, plain.steps[1].grad_norm);
      EXPECT_EQ(fixed.steps[1].loss, plain.steps[1].loss);
      EXPECT_EQ(fixed.steps[1].loss_scale, 4096);
      EXPECT_FALSE(plain.steps[1].loss_scale.has_value());
    });
  }
}

// What is not finite at any scale ends the run, after as many steps as may be skipped.
TEST(Trainer, AnOverflowThatStaysIsAnErrorThatNamesItsTensor) {
  for (const LossScaling mode : {LossScaling::fixed, LossScaling::dynamic}) {
    const bool moves = mode == LossScaling::dynamic;
    const TrainerOptions options = scaled({.mode = mode, .initial_scale = 2, .maximum_skips = 5});
    run_on_threads(4, [&](Transport& transport) {
      const Overflows seen = train_through_overflows(transport, 4, 4, options);
      EXPECT_EQ(seen.scaler.consecutive_skips, 4);
      EXPECT_EQ(seen.scaler.scale, moves ? 1 : 2);  // the least there is
      EXPECT_EQ(seen.weights.back(), seen.weights.front());
    });
    expect_error<NumericalError>(
        [&] {
          run_on_threads(4, [&](Transport& transport) {
            train_through_overflows(transport, 100, 100, options);
          });
        },
        {"step 5", "rank 1", "gradient of weight", moves ? "loss scale 1," : "loss scale 2,",
         "5 steps in a row"});
  }
}

TEST(Trainer, ALossThatIsNotANumberCountsAsASkip) {
  run_on_threads(4, [](Transport& transport) {
    const Overflows seen = train_through_overflows(
        transport, 0, 2, scaled({.mode = LossScaling::dynamic}), transport.rank() == 2 ? nan : 1);
    EXPECT_TRUE(seen.steps[1].skipped);
    EXPECT_EQ(seen.weights[2], seen.weights[0]);
  });
}

// Masks are drawn at the place in the run, so what four micro-batches of one rank train is what
// two ranks with two of them do.
TEST(Trainer, DropoutDoesNotDependOnTheWorld) {
  std::vector<std::vector<double>> losses;
  for (const int ranks : {1, 2, 4}) {
    for (const std::int64_t micro_batch : {1, 2}) {
      losses.emplace_back();
      run_on_threads(ranks, [&](Transport& transport) {
        TrainingRank rank(
            transport,
            make_model({.name = "gpt2-tiny",
                        .layers = 2,
                        .heads = 3,
                        .width = 15,
                        .vocabulary = vocabulary,
                        .context = sequence,
                        .dropout = 0.25},
                       DType::f64),
            random_data(40, 0),
            {.batches = plan_batches(8, micro_batch, ranks), .learning_rate = constant_rate});
        for (int step = 0; step < 3; ++step) {
          const double loss = rank.trainer.step().loss;
          if (transport.rank() == 0) {
            losses.back().push_back(loss);
          }
        }
      });
      for (std::size_t step = 0; step < 3; ++step) {
        EXPECT_NEAR(losses.back()[step], losses[0][step], 1e-12 * losses[0][step])
            << ranks << " ranks, micro-batch " << micro_batch << ", step " << step;
      }
    }
  }
}

// Seven samples divide by the batch of none of these, and the last of five ranks has nothing to
// evaluate.
TEST(Trainer, ValidationIsTheMeanOverExactlyTheSamples) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_on_threads(ranks, [&](Transport& transport) {
      TrainingRank rank(
          transport, tiny_gpt(), random_data(20, 7),
          {.batches = plan_batches(2 * ranks, 2, ranks), .learning_rate = constant_rate});
      const double expected = mean_loss(rank, rank.data.validation, 7);
      EXPECT_NEAR(rank.trainer.validate(), expected, 1e-12 * expected) << ranks << " ranks";
    });
  }
}

// A global batch is 8 samples whatever part of it is accumulation.
TEST(Trainer, ValidationBatchesAreGlobalBatches) {
  struct Case {
    std::int64_t batches;
    std::int64_t samples;  // that are evaluated, of 21
  };
  for (const Case& c : {Case{1, 8}, Case{2, 16}, Case{3, 21}, Case{4, 21}, Case{0, 21}}) {
    for (const std::int64_t micro_batch : {1, 2, 4}) {
      run_on_threads(2, [&](Transport& transport) {
        TrainingRank rank(transport, tiny_gpt(), random_data(20, 21),
                          {.batches = plan_batches(8, micro_batch, 2),
                           .learning_rate = constant_rate,
                           .validation_batches = c.batches});
        const double expected = mean_loss(rank, rank.data.validation, c.samples);
        EXPECT_NEAR(rank.trainer.validate(), expected, 1e-12 * expected)
            << c.batches << " batches, micro-batch " << micro_batch;
      });
    }
  }
}

}  // namespace
}  // namespace ringworld
