// ZeRO-1, -2, -3 on threads as ranks: each is a row held against a single process and against DDP.
#include "parallel/sharded.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/parallel/toy_model.h"
#include "tests/support/backend.h"
#include "tests/support/expect_error.h"
#include "training/gradient_step.h"
#include "training/parity.h"
#include "training/token_stream.h"

namespace ringworld {
namespace {

// An odd little GPT: its sizes divide nothing, its output layer is tied to its embedding.
ModelOptions odd_tied_gpt() {
  return {
      .name = "gpt2-tiny", .layers = 3, .heads = 3, .width = 15, .vocabulary = 11, .context = 6};
}

ParityOptions row(int ranks, int accumulation, StrategyOptions strategy,
                  DType precision = DType::f64) {
  return {.training = {.model = odd_tied_gpt(),
                       .precision = precision,
                       .strategy = std::move(strategy),
                       .optimizer = {.kind = precision == DType::f64 ? OptimizerKind::adamw
                                                                     : OptimizerKind::sgd}},
          .learning_rate = 0.01,
          .clip_norm = 0.1,  // below what the norms are
          .batches = plan_batches(2 * ranks * accumulation, 2, ranks),
          .bound = precision == DType::f64 ? 1e-12 : 1e-5};
}

ParityResult check(int ranks, const ParityOptions& options, bool reproducible = false) {
  std::vector<ParityResult> results(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    const auto backend = make_test_backend();
    Communicator communicator(transport, *backend, {.reproducible = reproducible});
    const TokenDataset data = whole_dataset(TokenStream::synthetic(11, 1000, 3), 6);
    results[static_cast<std::size_t>(transport.rank())] =
        check_parity(options, data, *backend, communicator, [](std::shared_ptr<Device> device) {
          return make_cpu_backend(std::move(device), /*threads=*/1);
        });
  });
  return results[0];
}

void expect_passes(const ParityResult& result) {
  EXPECT_TRUE(result.broken.empty()) << result.largest.what << " " << result.largest.relative_error;
  EXPECT_EQ(result.bytes_sent, result.bytes_expected);
  EXPECT_EQ(result.state_held, result.state_expected);
}

constexpr const char* sharded[] = {"zero1", "zero2", "fsdp"};

TEST(Sharded, EqualsASingleProcessForEveryDegreeWorldAndAccumulation) {
  for (const char* name : sharded) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int accumulation : {1, 3}) {
        SCOPED_TRACE(testing::Message() << name << ", " << ranks << " ranks, " << accumulation);
        expect_passes(check(ranks, row(ranks, accumulation, {.name = name})));
      }
    }
  }
}

TEST(Sharded, EveryOptionComputesTheSame) {
  for (const ReduceGradients when : {ReduceGradients::once, ReduceGradients::every_micro_batch}) {
    for (const bool reshards : {true, false}) {
      for (const int prefetch : {0, 1, 100}) {
        for (const std::int64_t checkpoint : {0, 1, 2}) {
          SCOPED_TRACE(testing::Message() << name_of(when) << reshards << prefetch << checkpoint);
          ParityOptions options = row(3, 2,
                                      {.name = "fsdp",
                                       .reduce_gradients = when,
                                       .reshard_after_forward = reshards,
                                       .prefetch = prefetch});
          options.checkpoint = checkpoint;
          expect_passes(check(3, options));
        }
      }
    }
  }
}

TEST(Sharded, OtherModelsAndPrecisions) {
  for (const char* name : sharded) {
    SCOPED_TRACE(name);
    expect_passes(check(3, row(3, 1, {.name = name}, DType::f32)));
    ParityOptions mlp = row(4, 1, {.name = name});
    mlp.training.model = {.name = "mlp", .layers = 2, .width = 5, .hidden = 3, .vocabulary = 11};
    expect_passes(check(4, mlp));
    // Width 4, as a layer norm's two tensors among 5 ranks: shards that are empty, or hold parts of
    // two parameters.
    ParityOptions tiny = row(5, 1, {.name = name});
    tiny.training.model.width = 4;
    tiny.training.model.heads = 1;
    tiny.training.model.hidden = 1;
    expect_passes(check(5, tiny));
  }
}

TEST(Sharded, InShardGroupsWithReplicas) {
  for (const char* name : sharded) {
    for (const int group : {1, 2, 4}) {
      for (const int accumulation : {1, 2}) {
        SCOPED_TRACE(testing::Message() << name << " in groups of " << group);
        expect_passes(check(4, row(4, accumulation, {.name = name, .shard_group = group})));
      }
    }
  }
}

// Adding in the order of the ranks, every degree computes the very bits of DDP: losses, gradients,
// the norm that they are clipped by, parameters.
TEST(Sharded, HasTheBitsOfDdpInReproducibleMode) {
  for (const int accumulation : {1, 2}) {
    const auto digest = [&](const StrategyOptions& strategy, std::int64_t checkpoint = 0) {
      ParityOptions options = row(3, accumulation, strategy, DType::f32);
      options.checkpoint = checkpoint;
      return check(3, options, /*reproducible=*/true).digest;
    };
    const std::uint64_t ddp = digest({.name = "ddp", .bucket = Bytes(1000)});
    EXPECT_EQ(digest({.name = "ddp"}), ddp);
    EXPECT_EQ(digest({.name = "ddp"}, 1), ddp);
    EXPECT_EQ(digest({.name = "zero1"}), ddp);
    EXPECT_EQ(digest({.name = "zero2", .reduce_gradients = ReduceGradients::once}), ddp);
    EXPECT_EQ(digest({.name = "fsdp", .reduce_gradients = ReduceGradients::once}, 2), ddp);
    if (accumulation == 1) {  // else other sums are rounded
      EXPECT_EQ(digest({.name = "zero2"}), ddp);
      EXPECT_EQ(digest({.name = "fsdp", .reshard_after_forward = false}), ddp);
    }
  }
}

// Offloaded, every level computes the same bits as resident, and the memory is where it should be.
TEST(Sharded, OffloadedItComputesTheSameBits) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    for (const char* name : {"zero1", "fsdp"}) {
      ParityOptions options = row(3, 2, {.name = name}, precision);
      options.training.optimizer.kind = OptimizerKind::adamw;
      options.bound = 1;  // what matters here are the bits of two strategies
      const std::uint64_t resident = check(3, options, /*reproducible=*/true).digest;
      for (const Offload what : {Offload::optimizer, Offload::master, Offload::parameters}) {
        for (const OffloadTo where : all_offload_targets) {
          options.training.offload = {.what = what, .where = where};
          if (where == OffloadTo::file) {
            options.training.offload.path = testing::TempDir();
          }
          if (what == Offload::parameters && std::string(name) != "fsdp") {
            EXPECT_NE(refusal(options.training, 3), "");
            continue;
          }
          SCOPED_TRACE(testing::Message() << name << " " << name_of(precision) << " "
                                          << name_of(what) << " to " << name_of(where));
          const ParityResult result = check(3, options, /*reproducible=*/true);
          EXPECT_EQ(result.digest, resident);
          expect_passes(result);
        }
      }
    }
  }
}

// Dropout's masks are functions of the token's place, so recomputing activations draws the same
// ones again: not a bit changes.
TEST(Sharded, RecomputationKeepsTheBitsWithDropout) {
  for (const char* name : {"ddp", "fsdp"}) {
    const auto digest = [&](std::int64_t checkpoint, bool attention) {
      ParityOptions options = row(2, 2, {.name = name}, DType::f32);
      options.training.model.dropout = 0.1;
      options.training.model.recompute_attention = attention;
      options.checkpoint = checkpoint;
      const ParityResult result = check(2, options, /*reproducible=*/true);
      expect_passes(result);
      return result.digest;
    };
    const std::uint64_t kept = digest(0, false);
    EXPECT_EQ(digest(1, false), kept);
    EXPECT_EQ(digest(2, false), kept);
    EXPECT_EQ(digest(0, true), kept);
  }
}

// Every degree trains as a single process does over many AdamW steps, with a tied weight, widths
// that divide nothing and one so small that ranks have empty shards. The GPT in f64: AdamW makes
// whole updates out of the rounding noise of the biases of its keys, whose gradient is zero.
TEST(Sharded, LossesOfTwentyStepsAreThoseOfASingleProcess) {
  struct Trained {
    ModelOptions model;
    DType precision;
  };
  ModelOptions narrow = odd_tied_gpt();
  narrow.width = 4;
  narrow.heads = 1;
  const Trained all[] = {{narrow, DType::f64},
                         {{.name = "mlp", .layers = 2, .width = 35, .vocabulary = 11}, DType::f32}};
  for (const auto& [model, precision] : all) {
    for (const int accumulation : {1, 3}) {
      std::vector<double> control;
      for (const char* name : {"ddp", "zero1", "zero2", "fsdp"}) {
        for (const int ranks : {1, 3}) {
          std::vector<double> losses;
          run_on_threads(ranks, [&](Transport& transport) {
            const auto backend = make_test_backend();
            Communicator communicator(transport, *backend);
            const TrainingSetup setup{
                .model = model, .precision = precision, .strategy = {.name = name}};
            const TrainingState state(setup, *backend, communicator, {});
            // The same 36 sequences in every step, in micro-batches of other sizes.
            const std::int64_t rows = 36 / ranks / accumulation;
            const TokenDataset data = whole_dataset(TokenStream::synthetic(11, 2000, 3), 6);
            for (std::int64_t step = 0; step < 20; ++step) {
              std::vector<HostBatch> batches;
              for (int i = 0; i < accumulation; ++i) {
                std::vector<std::int64_t> samples;
                for (std::int64_t r = 0; r < rows; ++r) {
                  samples.push_back((i * ranks + transport.rank()) * rows + r);
                }
                batches.push_back(read_batch(data, samples));
              }
              const Mesh mesh(communicator);
              const GradientStep gradient =
                  compute_gradients(state.model(), *backend, state.strategy(), &mesh, batches);
              state.strategy().begin_update();
              state.optimizer().step(0.01, clip_scale(gradient.gradient_norm, 1));
              state.strategy().finish_update();
              if (transport.rank() == 0) {
                losses.push_back(gradient.loss);
              }
            }
          });
          if (control.empty()) {
            control = losses;
            EXPECT_LT(losses.back(), losses.front());
          }
          for (std::size_t step = 0; step < losses.size(); ++step) {
            EXPECT_NEAR(losses[step], control[step], 1e-5 * control[step])
                << name << " on " << ranks << " ranks, " << model.name << ", step " << step;
          }
        }
      }
    }
  }
}

// What is whole for a while: with no prefetch the values of a unit and of the tied weight, and the
// gradients of one unit at work and one that is being reduced.
TEST(Sharded, HoldsAFewUnitsWhole) {
  ModelOptions deep = odd_tied_gpt();
  deep.layers = 6;
  run_on_threads(2, [&](Transport& transport) {
    const auto backend = make_test_backend();
    Communicator communicator(transport, *backend);
    const auto model = make_model(deep, DType::f64);
    const auto strategy =
        make_strategy({.name = "fsdp", .prefetch = 0}, *model, *backend, communicator, 1);
    std::int64_t block = 0;
    for (const Parameter* p : model->units()[1]->parameters()) {
      block += p->shape.elements();
    }
    const std::int64_t tied = model->parameters()[0]->shape.elements();
    const TokenDataset data = whole_dataset(TokenStream::synthetic(11, 100, 3), 6);
    const std::int64_t sample[] = {transport.rank()};
    const HostBatch batches[] = {read_batch(data, sample)};
    const Mesh mesh(communicator);
    compute_gradients(*model, *backend, *strategy, &mesh, batches);
    const Ledger ledger = backend->device().ledger();
    EXPECT_EQ(ledger.held_in(Category::gathered), Bytes(0));
    EXPECT_EQ(ledger.peak_in(Category::gathered), (2 * tied + 3 * block) * Bytes(8));
    // Of odd groups one rank has an element more.
    const std::int64_t own = communicator.all_reduce_value(
        ledger.held_in(Category::parameters).value, ReduceOp::sum, "test");
    EXPECT_EQ(own, 8 * model->parameter_count());
    EXPECT_EQ(ledger.held_in(Category::gradients), ledger.held_in(Category::parameters));
  });
}

// One gather for each pass over a group, one reduction, whatever uses it how often.
TEST(Sharded, MovesEachGroupOncePerPass) {
  run_on_threads(3, [](Transport& transport) {
    const auto backend = make_test_backend();
    Communicator communicator(transport, *backend);
    const auto model = make_model(odd_tied_gpt(), DType::f64);
    const auto strategy = make_strategy({.name = "fsdp"}, *model, *backend, communicator, 1);
    const TokenDataset data = whole_dataset(TokenStream::synthetic(11, 100, 3), 6);
    const std::int64_t sample[] = {transport.rank()};
    const HostBatch batches[] = {read_batch(data, sample), read_batch(data, sample)};
    const Mesh mesh(communicator);
    compute_gradients(*model, *backend, *strategy, &mesh, batches, {.checkpoint = 1});
    std::map<std::string, std::int64_t> calls;
    for (const auto& [label, traffic] : communicator.traffic_by_label()) {
      calls[label] = traffic.calls;
    }
    for (const char* group : {"embedding", "wte.weight", "h.0", "h.1", "h.2", "head"}) {
      EXPECT_EQ(calls[std::string("parameters ") + group], 4) << group;
      EXPECT_EQ(calls[std::string("gradients ") + group], 2) << group;
    }
  });
}

// A weight that no unit uses has gradient zero, is updated by weight decay alone, and no strategy
// waits for it.
TEST(Sharded, AnUnusedParameterOnlyDecays) {
  for (const char* name : sharded) {
    run_on_threads(3, [&](Transport& transport) {
      const auto backend = make_test_backend();
      Communicator communicator(transport, *backend);
      Model model("toy", DType::f64, 1, 0);
      Parameter* used = model.add_parameter({.name = "used", .shape = {7}, .mean = 1});
      Parameter* unused = model.add_parameter({.name = "unused", .shape = {7}, .mean = 1});
      model.add_unit(std::make_unique<ToyUnit>(
          "unit", std::vector{used}, no_loss,
          [=](Backend& b, const Batch& batch) { add_gradient(b, *used, batch, 1); }));
      const auto strategy = make_strategy({.name = name}, model, *backend, communicator, 1);
      const auto optimizer =
          make_optimizer({.kind = OptimizerKind::sgd, .momentum = 0, .weight_decay = 0.5},
                         strategy->shards(), *backend);
      const HostBatch batch{.micro_batch = 1, .sequence_length = 1, .tokens = {0}, .targets = {0}};
      const HostBatch batches[] = {batch};
      const Mesh mesh(communicator);
      compute_gradients(model, *backend, *strategy, &mesh, batches);
      optimizer->step(0.1);
      strategy->finish_update();
      for (const double value : backend->download_values(strategy->full_value(*unused))) {
        EXPECT_DOUBLE_EQ(value, 1 - 0.1 * 0.5);
      }
      for (const double value : backend->download_values(strategy->full_value(*used))) {
        EXPECT_DOUBLE_EQ(value, 1 - 0.1 * 0.5 - 0.1);  // three ranks, a third each
      }
    });
  }
}

// Shard norms 3 and 4 are a global norm of 5, on both ranks.
TEST(Sharded, ClipsWithTheNormOfTheWholeGradient) {
  for (const char* name : sharded) {
    run_on_threads(2, [&](Transport& transport) {
      const auto backend = make_test_backend();
      Communicator communicator(transport, *backend);
      Model model("toy", DType::f64, 1, 0);
      Parameter* weight = model.add_parameter({.name = "weight", .shape = {2}});
      model.add_unit(std::make_unique<ToyUnit>(
          "unit", std::vector{weight}, no_loss, [=](Backend& b, const Batch& batch) {
            const Tensor more = b.empty(DType::f64, {2}, Category::workspace);
            b.upload_values(more,
                            std::vector{3 * batch.gradient_factor, 4 * batch.gradient_factor});
            b.add(weight->gradient, weight->gradient, more);
          }));
      const auto strategy = make_strategy({.name = name}, model, *backend, communicator, 1);
      const HostBatch batch{.micro_batch = 1, .sequence_length = 1, .tokens = {0}, .targets = {0}};
      const HostBatch batches[] = {batch};
      const Mesh mesh(communicator);
      const GradientStep step = compute_gradients(model, *backend, *strategy, &mesh, batches);
      EXPECT_EQ(step.gradient_norm, 5);
      EXPECT_DOUBLE_EQ(clip_scale(step.gradient_norm, 1), 1 / (5 + 1e-6));
    });
  }
}

TEST(Sharded, RefusesWhatItCannotDo) {
  const auto expect_refused = [](const StrategyOptions& options, int ranks,
                                 const std::vector<std::string>& words) {
    const std::string why = refusal(options, ranks);
    for (const std::string& word : words) {
      EXPECT_NE(why.find(word), std::string::npos) << why;
    }
    EXPECT_FALSE(why.empty());
  };
  expect_refused({.name = "fsdp", .shard_group = 4}, 6, {"4", "6 ranks", "1, 2, 3, 6"});
  expect_refused({.name = "ddp", .shard_group = 2}, 4, {"--shard-group", "ddp"});
  expect_refused({.name = "zero1", .reduce_gradients = ReduceGradients::every_micro_batch}, 2,
                 {"every-micro-batch", "zero1"});
  expect_refused({.name = "zero2", .reshard_after_forward = false}, 2, {"reshard", "zero2"});
  EXPECT_EQ(refusal({.name = "zero3", .reshard_after_forward = false, .shard_group = 2}, 4), "");
}

}  // namespace
}  // namespace ringworld
