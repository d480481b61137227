// DDP on threads as ranks, against a single process.
#include "parallel/ddp.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/parallel/toy_model.h"
#include "tests/support/backend.h"
#include "tests/support/expect_error.h"
#include "training/gradient_step.h"
#include "training/optimizer.h"

namespace ringworld {
namespace {

// One rank with everything it needs, on a thread.
struct Rank {
  explicit Rank(Transport& transport) : communicator(transport, *backend) {}
  std::unique_ptr<Backend> backend = make_test_backend();
  Communicator communicator;
};

// An odd little GPT: its sizes divide nothing.
ModelOptions odd_gpt() {
  return {
      .name = "gpt2-tiny", .layers = 2, .heads = 3, .width = 15, .vocabulary = 11, .context = 7};
}

constexpr std::int64_t length = 7;

// `rows` sequences of tokens that depend on their position in the global batch alone; the targets
// of the first `masked` tokens of each are not trained.
HostBatch sequences(std::int64_t first, std::int64_t rows, std::int64_t masked = 0) {
  HostBatch batch{.micro_batch = rows, .sequence_length = length, .tokens = {}, .targets = {}};
  for (std::int64_t i = first * length; i < (first + rows) * length; ++i) {
    const RandomKey key{5, Purpose::synthetic_data, 1};
    batch.tokens.push_back(
        static_cast<std::int32_t>(random_bits(key, static_cast<std::uint64_t>(i)) % 11));
    const auto target = random_bits(key, static_cast<std::uint64_t>(i) + (1u << 20)) % 11;
    batch.targets.push_back(i % length < masked ? -1 : static_cast<std::int32_t>(target));
  }
  return batch;
}

using Gradients = std::map<std::string, std::vector<double>>;

Gradients gradients_of(const Model& model, Backend& backend) {
  Gradients gradients;
  for (const auto& p : model.parameters()) {
    gradients[p->name] = backend.download_values(p->gradient);
  }
  return gradients;
}

void expect_close(const Gradients& ours, const Gradients& control, double bound) {
  for (const auto& [name, values] : control) {
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(ours.at(name)[i] - values[i], 2);
      size += values[i] * values[i];
    }
    EXPECT_LE(std::sqrt(difference), bound * std::sqrt(size)) << name;
  }
}

struct Outcome {
  GradientStep step;
  Gradients gradients;
};

Outcome single_process(const ModelOptions& options, DType dtype,
                       const std::vector<HostBatch>& batches) {
  const auto backend = make_test_backend();
  const auto model = make_model(options, dtype);
  const auto strategy = make_single_process(*model, *backend, 1);
  Outcome outcome;
  outcome.step = compute_gradients(*model, *backend, *strategy, nullptr, batches);
  outcome.gradients = gradients_of(*model, *backend);
  return outcome;
}

// What rank 0 of `ranks` gets, each running `batches_of(rank)`; that all get the same is checked.
Outcome on_ranks(int ranks, const ModelOptions& options, DType dtype, Bytes bucket,
                 const std::function<std::vector<HostBatch>(int)>& batches_of) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    Rank self(transport);
    const auto model = make_model(options, dtype);
    Ddp ddp(*model, *self.backend, self.communicator, bucket, 1);
    Outcome& outcome = outcomes[static_cast<std::size_t>(transport.rank())];
    const Mesh mesh(self.communicator);
    outcome.step =
        compute_gradients(*model, *self.backend, ddp, &mesh, batches_of(transport.rank()));
    outcome.gradients = gradients_of(*model, *self.backend);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.gradients, outcomes[0].gradients);  // the same bits
    EXPECT_EQ(outcome.step.loss, outcomes[0].step.loss);
    EXPECT_EQ(outcome.step.gradient_norm, outcomes[0].step.gradient_norm);
  }
  return outcomes[0];
}

TEST(Ddp, GradientsEqualASingleProcessForEveryWorldAndAccumulation) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    for (const int accumulation : {1, 3}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, accumulation " << accumulation);
      const Outcome ours = on_ranks(ranks, odd_gpt(), DType::f64, Bytes(4096), [&](int rank) {
        std::vector<HostBatch> batches;
        for (int i = 0; i < accumulation; ++i) {
          batches.push_back(sequences((i * ranks + rank) * 2, 2));
        }
        return batches;
      });
      const Outcome control =
          single_process(odd_gpt(), DType::f64, {sequences(0, 2 * ranks * accumulation)});
      EXPECT_NEAR(ours.step.loss, control.step.loss, 1e-12 * control.step.loss);
      EXPECT_NEAR(ours.step.gradient_norm, control.step.gradient_norm,
                  1e-12 * control.step.gradient_norm);
      EXPECT_EQ(ours.step.tokens, control.step.tokens);
      expect_close(ours.gradients, control.gradients, 1e-12);
    }
  }
}

// Ranks and micro-batches with different numbers of trained tokens: each token weighs the same.
TEST(Ddp, UnequalTokenCountsAreNotAMeanOfMeans) {
  const auto batches_of = [](int rank) {
    return std::vector<HostBatch>{sequences(2 * rank, 1, /*masked=*/rank == 0 ? 6 : 2),
                                  sequences(2 * rank + 1, 1, /*masked=*/3)};
  };
  const Outcome ours = on_ranks(2, odd_gpt(), DType::f64, Bytes(1 << 20), batches_of);
  std::vector<HostBatch> all = batches_of(0);
  for (const HostBatch& batch : batches_of(1)) {
    all.push_back(batch);
  }
  const Outcome control = single_process(odd_gpt(), DType::f64, all);
  EXPECT_EQ(ours.step.tokens, 1 + 4 + 5 + 4);
  EXPECT_NEAR(ours.step.loss, control.step.loss, 1e-12 * control.step.loss);
  expect_close(ours.gradients, control.gradients, 1e-12);
}

// A rank that has nothing to train takes part all the same.
TEST(Ddp, ARankWithoutTrainedTokensAddsNothing) {
  const Outcome ours =
      on_ranks(2, odd_gpt(), DType::f64, Bytes(1 << 20), [](int rank) -> std::vector<HostBatch> {
        return {sequences(rank, 1, /*masked=*/rank == 1 ? length : 0)};
      });
  const Outcome control = single_process(odd_gpt(), DType::f64, {sequences(0, 1)});
  EXPECT_NEAR(ours.step.loss, control.step.loss, 1e-12 * control.step.loss);
  expect_close(ours.gradients, control.gradients, 1e-12);
}

TEST(Ddp, BucketSizeDoesNotMatter) {
  const auto batches_of = [](int rank) { return std::vector<HostBatch>{sequences(rank, 1)}; };
  const Outcome whole = on_ranks(3, odd_gpt(), DType::f32, Bytes(1 << 30), batches_of);
  for (const Bytes bucket : {Bytes(1), Bytes(1000), Bytes(1 << 14)}) {
    expect_close(on_ranks(3, odd_gpt(), DType::f32, bucket, batches_of).gradients, whole.gradients,
                 1e-6);
  }
}

TEST(Ddp, OneReductionPerBucketAndStepWhateverTheAccumulation) {
  for (const int accumulation : {1, 4}) {
    run_on_threads(3, [&](Transport& transport) {
      Rank self(transport);
      const auto model = make_model(odd_gpt(), DType::f32);
      Ddp ddp(*model, *self.backend, self.communicator, Bytes(2000), 1);
      ASSERT_GT(ddp.bucket_count(), 3);
      const std::vector<HostBatch> batches(static_cast<std::size_t>(accumulation),
                                           sequences(transport.rank(), 1));
      for (int step = 1; step <= 2; ++step) {
        const Mesh mesh(self.communicator);
        compute_gradients(*model, *self.backend, ddp, &mesh, batches);
        std::int64_t reductions = 0;
        Bytes sent;
        for (const auto& [label, traffic] : self.communicator.traffic_by_label()) {
          if (label.starts_with("gradients")) {
            EXPECT_EQ(traffic.calls, step) << label;
            reductions += traffic.calls;
            sent += traffic.bytes_sent;
          }
        }
        EXPECT_EQ(reductions, step * ddp.bucket_count());
        const auto all = self.communicator.all_reduce_value(sent.value, ReduceOp::sum, "bytes");
        EXPECT_EQ(Bytes(all), step * ddp.expected_traffic(1));
      }
    });
  }
}

TEST(Ddp, InitialValuesDependOnSeedAloneAndRanksStartEqual) {
  std::vector<std::vector<double>> initial;
  for (const int ranks : {1, 2, 4}) {
    std::mutex mutex;
    run_on_threads(ranks, [&](Transport& transport) {
      Rank self(transport);
      const auto model = make_model(odd_gpt(), DType::f32);
      // Seeds that depend on the rank, as a careless launcher would give them: rank 0's counts.
      const auto seed = static_cast<std::uint64_t>(3 + 10 * transport.rank());
      Ddp ddp(*model, *self.backend, self.communicator, Bytes(1 << 20), seed);
      std::vector<double> all;
      for (const auto& p : model->parameters()) {
        const auto values = self.backend->download_values(p->value);
        all.insert(all.end(), values.begin(), values.end());
      }
      const std::lock_guard lock(mutex);
      initial.push_back(std::move(all));
    });
  }
  for (const auto& values : initial) {
    EXPECT_EQ(values, initial[0]);
  }
}

// A transport in which something goes wrong, or is watched.
class WrappedTransport : public Transport {
 public:
  explicit WrappedTransport(Transport& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int local_ranks() const override { return inner_.local_ranks(); }
  std::string_view name() const override { return inner_.name(); }
  std::string description() const override { return inner_.description(); }
  void bind(Backend& backend) override { inner_.bind(backend); }
  void set_timeout(std::chrono::milliseconds timeout) override { inner_.set_timeout(timeout); }
  Ticket send(int to, Signature signature, const Tensor& x) override {
    ++sends;
    return inner_.send(to, signature, x);
  }
  Ticket receive(int from, Signature signature, const Tensor& out) override {
    return inner_.receive(from, signature, out);
  }
  Ticket read(int from, Signature signature, DType dtype, std::int64_t elements) override {
    return inner_.read(from, signature, dtype, elements);
  }
  const Tensor& reading(Ticket ticket) override { return inner_.reading(ticket); }
  void done_reading(Ticket ticket) override { inner_.done_reading(ticket); }
  bool in_place(int peer) const override { return inner_.in_place(peer); }
  bool test(Ticket ticket) override { return inner_.test(ticket); }
  std::size_t wait_any(std::span<const Ticket> tickets) override {
    return inner_.wait_any(tickets);
  }
  Board& board() override { return inner_.board(); }
  std::vector<std::optional<Said>> statements(std::chrono::milliseconds patience) override {
    return inner_.statements(patience);
  }
  void abandon() override { inner_.abandon(); }

  std::atomic<int> sends = 0;

 private:
  Transport& inner_;
};

class CorruptingTransport : public WrappedTransport {
 public:
  CorruptingTransport(Transport& inner, Backend& backend)
      : WrappedTransport(inner), backend_(backend) {}
  // The first one is another than was sent.
  const Tensor& reading(Ticket ticket) override {
    const Tensor& sent = WrappedTransport::reading(ticket);
    if (corrupted_.defined() || sent.elements() == 0) {
      return sent;
    }
    corrupted_ = backend_.empty(sent.dtype(), sent.shape(), Category::communication);
    backend_.copy(corrupted_, sent);
    backend_.fill(corrupted_.slice(0, 1), 42);
    return corrupted_;
  }

 private:
  Backend& backend_;
  Tensor corrupted_;
};

TEST(Ddp, ReplicasThatDoNotStartEqualAreNamed) {
  expect_error<CommunicationError>(
      [] {
        run_on_threads(3, [](Transport& transport) {
          const auto backend = make_test_backend();
          CorruptingTransport corrupting(transport, *backend);
          Transport& chosen = transport.rank() == 2 ? corrupting : transport;
          Communicator communicator(chosen, *backend);
          const auto model = make_model(odd_gpt(), DType::f32);
          Ddp ddp(*model, *backend, communicator, Bytes(1 << 20), 1);
        });
      },
      {"wte.weight", "rank 2"});
}

// The last unit's gradients travel while the first unit's backward is still running: that backward
// here does not end before it has seen a message leave. The buckets are too large to be left until
// they are waited for (communicator.h).
TEST(Ddp, ReducesWhileBackwardGoesOn) {
  run_on_threads(2, [](Transport& transport) {
    const auto backend = make_test_backend();
    WrappedTransport watched(transport);
    Communicator communicator(watched, *backend);
    Model model("toy", DType::f64, 11, 0);
    Parameter* first = model.add_parameter({.name = "first", .shape = {10'000}});
    Parameter* last = model.add_parameter({.name = "last", .shape = {10'000}});
    std::atomic<int> sends_before = 0;
    bool overlapped = false;
    model.add_unit(std::make_unique<ToyUnit>(
        "unit 0", std::vector{first}, no_loss, [&](Backend& b, const Batch& batch) {
          const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
          while (watched.sends == sends_before && std::chrono::steady_clock::now() < give_up) {
            std::this_thread::yield();
          }
          overlapped = watched.sends > sends_before;
          add_gradient(b, *first, batch, 1);
        }));
    model.add_unit(std::make_unique<ToyUnit>("unit 1", std::vector{last}, no_loss,
                                             [&](Backend& b, const Batch& batch) {
                                               sends_before = watched.sends.load();
                                               add_gradient(b, *last, batch, 1);
                                             }));
    Ddp ddp(model, *backend, communicator, Bytes(1), 1);
    const HostBatch batch[] = {sequences(0, 1)};
    const Mesh mesh(communicator);
    compute_gradients(model, *backend, ddp, &mesh, batch);
    EXPECT_TRUE(overlapped);
    EXPECT_NEAR(backend->download_values(last->gradient)[0], 2.0 / (2 * length), 1e-15);
  });
}

// W gets the gradient 4 on rank 0 and none on rank 1, each rank one token: 2 on both. V is in a
// unit but used by nobody, U is in no unit at all.
TEST(Ddp, ParametersThatAreNotUsedEverywhere) {
  run_on_threads(2, [](Transport& transport) {
    Rank self(transport);
    Model model("toy", DType::f64, 11, 0);
    Parameter* w = model.add_parameter({.name = "w", .shape = {2}, .deviation = 1});
    Parameter* v = model.add_parameter({.name = "v", .shape = {5}, .deviation = 1});
    Parameter* u = model.add_parameter({.name = "u", .shape = {3}, .decay = false, .deviation = 1});
    const bool uses_w = transport.rank() == 0;
    model.add_unit(std::make_unique<ToyUnit>("unit", std::vector{w, v}, no_loss,
                                             [&](Backend& b, const Batch& batch) {
                                               if (uses_w) {
                                                 add_gradient(b, *w, batch, 4);
                                               }
                                             }));
    Ddp ddp(model, *self.backend, self.communicator, Bytes(1 << 20), 1);
    const auto optimizer = make_optimizer({.weight_decay = 0.1}, ddp.shards(), *self.backend);
    const auto before_v = self.backend->download_values(v->value);
    const auto before_u = self.backend->download_values(u->value);

    const HostBatch batch[] = {
        {.micro_batch = 1, .sequence_length = 1, .tokens = {1}, .targets = {2}}};
    const Mesh mesh(self.communicator);
    compute_gradients(model, *self.backend, ddp, &mesh, batch);
    EXPECT_EQ(self.backend->download_values(w->gradient), (std::vector<double>{2, 2}));
    EXPECT_EQ(self.backend->download_values(v->gradient), std::vector<double>(5, 0.0));
    EXPECT_EQ(self.backend->download_values(u->gradient), std::vector<double>(3, 0.0));

    optimizer->step(0.5);
    const auto after_v = self.backend->download_values(v->value);
    for (std::size_t i = 0; i < after_v.size(); ++i) {
      EXPECT_NEAR(after_v[i], before_v[i] * (1 - 0.5 * 0.1), 1e-15);  // decay and nothing else
    }
    EXPECT_EQ(self.backend->download_values(u->value), before_u);
  });
}

// Micro-batches of 10 and 100 trained tokens with mean losses 3 and 1.
TEST(Ddp, LossIsAMeanOverTokens) {
  run_on_threads(1, [](Transport& transport) {
    Rank self(transport);
    Model model("toy", DType::f64, 11, 0);
    Parameter* w = model.add_parameter({.name = "w", .shape = {1}});
    const auto loss_of = [](const Batch& batch) {
      return batch.targets.elements() == 10 ? 3. : 1.;
    };
    model.add_unit(std::make_unique<ToyUnit>(
        "unit", std::vector{w},
        [&](Backend& b, const Batch& batch) {
          Tensor losses = b.empty(DType::f64, {batch.targets.elements()}, Category::activations);
          b.fill(losses, loss_of(batch));
          return losses;
        },
        [&](Backend& b, const Batch& batch) {
          add_gradient(b, *w, batch,
                       loss_of(batch) * static_cast<double>(batch.targets.elements()));
        }));
    Ddp ddp(model, *self.backend, self.communicator, Bytes(1 << 20), 1);
    const auto tokens = [](std::int64_t count) {
      const std::vector<std::int32_t> ones(static_cast<std::size_t>(count), 1);
      return HostBatch{1, count, ones, ones};
    };
    const HostBatch batches[] = {tokens(10), tokens(100)};
    const Mesh mesh(self.communicator);
    const GradientStep step = compute_gradients(model, *self.backend, ddp, &mesh, batches);
    EXPECT_NEAR(step.loss, 1.1818181818181818, 1e-15);
    EXPECT_NEAR(self.backend->download_values(w->gradient)[0], 1.1818181818181818, 1e-15);
  });
}

// 7 equal micro-batches in windows of 4: two steps, of which the second is a mean over 3, and has
// nothing of the first.
TEST(Ddp, AShorterLastWindowIsAMeanOverItsOwnMicroBatches) {
  run_on_threads(2, [](Transport& transport) {
    Rank self(transport);
    Model model("toy", DType::f64, 11, 0);
    Parameter* w = model.add_parameter({.name = "w", .shape = {1}});
    model.add_unit(std::make_unique<ToyUnit>(
        "unit", std::vector{w},
        [&](Backend& b, const Batch& batch) {
          Tensor losses = b.empty(DType::f64, {batch.targets.elements()}, Category::activations);
          b.fill(losses, 2);
          return losses;
        },
        [&](Backend& b, const Batch& batch) { add_gradient(b, *w, batch, 5); }));
    Ddp ddp(model, *self.backend, self.communicator, Bytes(1 << 20), 1);
    const Mesh mesh(self.communicator);
    for (const std::size_t window : {4u, 3u}) {
      const std::vector<HostBatch> batches(window, HostBatch{1, 1, {1}, {1}});
      const GradientStep step = compute_gradients(model, *self.backend, ddp, &mesh, batches);
      EXPECT_EQ(step.tokens, static_cast<std::int64_t>(2 * window));
      EXPECT_NEAR(step.loss, 2, 1e-15);
      EXPECT_NEAR(self.backend->download_values(w->gradient)[0], 5, 1e-14);
    }
  });
}

TEST(Strategy, UnknownNamesAreRefusedWithTheNearest) {
  run_on_threads(1, [](Transport& transport) {
    Rank self(transport);
    const auto model = make_model(odd_gpt(), DType::f32);
    expect_error<UsageError>(
        [&] { make_strategy({.name = "dpp"}, *model, *self.backend, self.communicator, 1); },
        {"dpp", "'ddp'"});
  });
}

}  // namespace
}  // namespace ringworld
