// Tensor, sequence and pipeline parallelism under every strategy of the data axis against a single
// process, on threads as ranks: the same losses, gradients and parameters, and the bytes of theory.
#include "training/parity.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "training/token_stream.h"

namespace ringworld {
namespace {

constexpr std::int64_t vocabulary = 13;  // divided over 2 or 4 ranks, parts are uneven
constexpr std::int64_t tokens_each = 5;  // so are parts of sequences

std::unique_ptr<Backend> cpu_on(std::shared_ptr<Device> device) {
  return make_cpu_backend(std::move(device), /*threads=*/1);
}

ModelOptions gpt2(std::int64_t layers) {
  return {
      .layers = layers, .heads = 4, .width = 16, .vocabulary = vocabulary, .context = tokens_each};
}

ModelOptions llama(std::int64_t layers, bool tied) {
  return {.name = "llama-tiny",
          .layers = layers,
          .heads = 4,
          .width = 16,
          .hidden = 20,
          .vocabulary = vocabulary,
          .context = tokens_each,
          .kv_heads = 2,
          .tied = tied};
}

ParityOptions options_for(const ModelOptions& model, const std::string& mesh, int micro_batches) {
  const MeshShape shape = parse_mesh(mesh);
  return {.training = {.model = model, .precision = DType::f64, .mesh = shape},
          .learning_rate = 0.01,
          .clip_norm = 0.5,
          .batches = plan_batches(shape.data * micro_batches, 1, shape.data),
          .bound = 1e-12};
}

// Rank 0's result.
ParityResult check(const ParityOptions& options) {
  ParityResult result;
  run_on_threads(options.training.mesh->ranks(), [&](Transport& transport) {
    const auto backend = cpu_on(Device::create({.poison = true}));
    Communicator communicator(transport, *backend);
    const TokenDataset data =
        whole_dataset(TokenStream::synthetic(vocabulary, 1000, 3), tokens_each);
    const ParityResult own = check_parity(options, data, *backend, communicator, cpu_on);
    if (transport.rank() == 0) {
      result = own;
    }
  });
  return result;
}

void expect_equal(const ParityOptions& options) {
  const ParityResult result = check(options);
  EXPECT_TRUE(result.broken.empty())
      << result.broken.size() << " are off, first " << result.broken[0].what << " by "
      << result.broken[0].relative_error << " on rank " << result.broken[0].rank;
  EXPECT_EQ(result.bytes_sent, result.bytes_expected);
  EXPECT_EQ(result.state_held, result.state_expected);
}

// --- Equality ------------------------------------------------------------------------------------

struct Combination {
  std::string mesh;
  std::string schedule = "1f1b";
  bool sequence_parallel = false;
  std::string strategy = "ddp";
  int micro_batches = 2;
  std::int64_t checkpoint = 0;
  double dropout = 0;
  DType precision = DType::f64;
  Offload offload = Offload::none;
  std::vector<std::int64_t> stages = {};
  bool recompute_attention = false;
  ReduceGradients reduce_gradients = ReduceGradients::automatic;

  friend void PrintTo(const Combination& c, std::ostream* out) {
    *out << c.mesh << " " << c.schedule << (c.sequence_parallel ? " sp " : " ") << c.strategy
         << " m=" << c.micro_batches << " checkpoint " << c.checkpoint << " dropout " << c.dropout
         << " " << name_of(c.precision) << " offload " << name_of(c.offload);
  }
};

ParityOptions options_for(const ModelOptions& model, const Combination& c) {
  ParityOptions options = options_for(model, c.mesh, c.micro_batches);
  options.training.model.dropout = c.dropout;
  options.training.model.recompute_attention = c.recompute_attention;
  options.training.sequence_parallel = c.sequence_parallel;
  options.training.pipeline = {.schedule = c.schedule, .layers = c.stages};
  options.training.strategy.name = c.strategy;
  options.training.strategy.reduce_gradients = c.reduce_gradients;
  options.training.precision = c.precision;
  options.training.offload.what = c.offload;
  options.checkpoint = c.checkpoint;
  if (c.precision == DType::bf16) {
    options.training.optimizer.kind = OptimizerKind::sgd;
  }
  options.bound = rounding_bound(options.training);
  return options;
}

class ParallelParity : public testing::TestWithParam<Combination> {};

TEST_P(ParallelParity, GptEqualsASingleProcess) {
  expect_equal(options_for(gpt2(4), GetParam()));
}

TEST_P(ParallelParity, LlamaEqualsASingleProcess) {
  Combination c = GetParam();
  if (c.mesh == "tp=4" || c.dropout > 0) {
    return;  // its two key-value heads are for two ranks; it has no dropout
  }
  expect_equal(options_for(llama(4, /*tied=*/c.micro_batches % 2 == 0), c));
}

INSTANTIATE_TEST_SUITE_P(
    Combinations, ParallelParity,
    testing::Values(
        // One axis at a time.
        Combination{"tp=2"}, Combination{"tp=2", "1f1b", true}, Combination{"tp=4"},
        Combination{"tp=4", "1f1b", true, "ddp", 1}, Combination{"pp=2"},
        Combination{"pp=4", "1f1b", false, "ddp", 5}, Combination{"pp=2", "fill-drain"},
        Combination{"pp=2", "zb-h1", false, "ddp", 3}, Combination{"pp=4", "zb-h2"},
        Combination{.mesh = "pp=2", .stages = {1, 3}},
        Combination{"pp=2", "interleaved-1f1b", false, "ddp", 4},
        // With every strategy of the data axis.
        Combination{"dp=2,tp=2", "1f1b", true, "zero1"},
        Combination{"dp=2,tp=2", "1f1b", false, "zero2"},
        Combination{"dp=3,tp=2", "1f1b", true, "fsdp"},
        Combination{"dp=2,pp=2", "1f1b", false, "zero1"},
        Combination{"dp=2,pp=2", "1f1b", false, "zero2", 3},
        Combination{"dp=2,pp=2", "fill-drain", false, "fsdp", 3},
        Combination{"dp=2,pp=2", "interleaved-1f1b", false, "fsdp"},
        Combination{"dp=2,pp=2", "zb-h1", false, "zero1", 3},
        Combination{.mesh = "dp=2,pp=2",
                    .schedule = "zb-h1",
                    .strategy = "fsdp",
                    .micro_batches = 4,
                    .reduce_gradients = ReduceGradients::once},
        Combination{.mesh = "dp=2,pp=2",
                    .schedule = "zb-h2",
                    .strategy = "fsdp",
                    .micro_batches = 4,
                    .checkpoint = 1,
                    .reduce_gradients = ReduceGradients::once},
        // All three, with what else there is.
        Combination{"dp=2,pp=2,tp=2", "1f1b", false, "ddp", 3},
        Combination{"dp=2,pp=2,tp=2", "interleaved-1f1b", true, "fsdp", 2, 1, 0.1},
        Combination{"dp=2,pp=2,tp=2", "zb-h2", true, "zero1", 3, 1, 0.1},
        Combination{"dp=2,pp=2,tp=2", "1f1b", true, "zero2", 3, 2, 0.1},
        Combination{"pp=2,tp=2", "zb-h1", true, "ddp", 3, 0, 0.1},
        Combination{"tp=2", "1f1b", true, "ddp", 2, 1, 0.1},
        Combination{"pp=4", "1f1b", false, "ddp", 3, 1, 0.1},
        Combination{.mesh = "pp=2,tp=2", .sequence_parallel = true, .recompute_attention = true},
        Combination{"dp=2,pp=2", "1f1b", false, "fsdp", 2, 0, 0, DType::f64, Offload::parameters},
        Combination{"dp=2,tp=2", "1f1b", true, "zero1", 2, 0, 0, DType::f64, Offload::optimizer},
        Combination{"dp=2,pp=2,tp=2", "1f1b", true, "fsdp", 2, 1, 0, DType::bf16},
        Combination{"dp=2,pp=2,tp=2", "zb-h1", false, "ddp", 2, 0, 0, DType::bf16}));

// Stages that outnumber the micro-batches, for every schedule that takes so few.
TEST(ParallelParity, AnyNumberOfMicroBatchesOnFourStages) {
  for (const std::string schedule : {"fill-drain", "1f1b", "zb-h1", "zb-h2"}) {
    for (int micro_batches = 1; micro_batches <= 5; ++micro_batches) {
      SCOPED_TRACE(schedule + ", micro-batches " + std::to_string(micro_batches));
      expect_equal(options_for(gpt2(4), {"pp=4", schedule, false, "ddp", micro_batches}));
    }
  }
}

// A vocabulary that is no multiple of anything: its parts are of different sizes, and nothing is
// padded.
TEST(ParallelParity, AVocabularyOf50257OverTwoAndFourRanks) {
  for (const char* mesh : {"tp=2", "tp=4"}) {
    ModelOptions model{
        .layers = 1, .heads = 4, .width = 8, .vocabulary = 50257, .context = tokens_each};
    ParityOptions options = options_for(model, mesh, 1);
    options.steps = 1;
    expect_equal(options);
  }
}

// --- Faults --------------------------------------------------------------------------------------

// Rank 5 of dp=2,pp=2,tp=2 differs from rank 4 along the tensor axis, from 7 along the pipeline and
// from 1 along data.
TEST(ParallelParity, AFaultIsFoundOnEveryRankOfEveryAxis) {
  for (int rank = 0; rank < 8; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    ParityOptions options = options_for(gpt2(2), "dp=2,pp=2,tp=2", 2);
    const bool is_first_stage = rank / 2 % 2 == 0;
    options.plant =
        Plant{.tensor = is_first_stage ? "h.0.mlp.c_fc.weight" : "h.1.attn.c_attn.weight",
              .factor = 2,
              .rank = rank};
    const ParityResult result = check(options);
    ASSERT_EQ(result.broken.size(), 1u);
    EXPECT_EQ(result.broken[0].what, "gradient of " + options.plant->tensor);
    EXPECT_EQ(result.broken[0].rank, rank);
    EXPECT_EQ(result.broken[0].step, 1);
    EXPECT_NEAR(result.broken[0].ratio, 2, 1e-9);
  }
}

// Either copy of a tied weight, and a replica of a norm.
TEST(ParallelParity, AFaultInACopyIsFound) {
  for (const auto& [tensor, rank] :
       {std::pair("wte.weight", 0), {"wte.weight", 2}, {"ln_f.weight", 2}, {"ln_f.weight", 3}}) {
    ParityOptions options = options_for(gpt2(2), "pp=2,tp=2", 2);
    options.training.sequence_parallel = true;
    options.plant = Plant{.tensor = tensor, .factor = -1, .rank = rank};
    const ParityResult result = check(options);
    ASSERT_FALSE(result.broken.empty());
    EXPECT_EQ(result.broken[0].what, std::string("gradient of ") + tensor);
    EXPECT_EQ(result.broken[0].rank, rank);
    EXPECT_NEAR(result.broken[0].ratio, -1, 1e-9);
  }
}

TEST(ParallelParity, AStageThatHasNoneOfATensorIsSaid) {
  ParityOptions options = options_for(gpt2(2), "pp=2,tp=2", 2);
  options.plant = Plant{.tensor = "h.1.mlp.c_fc.weight", .factor = 2, .rank = 1};
  expect_error<UsageError>([&] { check(options); },
                           {"rank 1", "h.1.mlp.c_fc.weight", "rank 2 does"});
}

}  // namespace
}  // namespace ringworld
