// Training over meshes, on threads as ranks: loss and norm are those of a single process on every
// rank, copies of a parameter stay the same bits, a step is skipped by all or by none, and memory
// does not grow with the micro-batches.
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "parallel/parallelize.h"
#include "training/token_stream.h"
#include "training/trainer.h"
#include "training/training_state.h"

namespace ringworld {
namespace {

constexpr std::int64_t vocabulary = 13;
constexpr std::int64_t length = 6;

// Elements of a parameter that a rank has: its name, and the parts of the split axis.
using Place = std::pair<std::string, std::vector<std::pair<std::int64_t, std::int64_t>>>;

// What one rank saw of a run.
struct Seen {
  std::vector<StepMetrics> steps;
  double validation_loss = 0;
  double loss_scale = 0;
  std::map<Place, std::vector<double>> before;  // before the last step
  std::map<Place, std::vector<double>> values;  // in the end
};

struct Training {
  TrainingSetup setup;
  int micro_batches = 2;
  int steps = 3;
  LossScalerOptions loss_scaling = {};
  // In the last step, this rank's gradient of this parameter gets an infinite element.
  int faulty_rank = -1;
  std::string faulty_parameter = {};
};

// Spoils a gradient in backward.
class Fault : public UnitObserver {
 public:
  Fault(Backend& backend, std::string parameter)
      : backend_(backend), parameter_(std::move(parameter)) {}
  void after_forward(const Unit&, const Tensor&) override {}
  void after_backward(const Unit& unit, const Tensor&) override {
    for (const Parameter* p : unit.parameters()) {
      if (p->name == parameter_ && !done_) {
        backend_.fill(p->gradient.view({p->gradient.elements()}).slice(1, 1),
                      std::numeric_limits<double>::infinity());
        done_ = true;
      }
    }
  }
  bool done() const { return done_; }

 private:
  Backend& backend_;
  const std::string parameter_;
  bool done_ = false;
};

std::map<Place, std::vector<double>> values_of(TrainingState& state, Backend& backend) {
  std::map<Place, std::vector<double>> values;
  for (const auto& p : state.model().parameters()) {
    Place place{p->name, {}};
    for (const Part& part : p->parts) {
      place.second.emplace_back(part.first, part.count);
    }
    values[place] = backend.download_values(state.strategy().full_value(*p));
  }
  return values;
}

std::vector<Seen> train(const Training& run) {
  const MeshShape mesh = *run.setup.mesh;
  std::vector<Seen> ranks(static_cast<std::size_t>(mesh.ranks()));
  run_on_threads(mesh.ranks(), [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({.poison = true}), /*threads=*/1);
    Communicator world(transport, *backend);
    TrainingState state(run.setup, *backend, world, [](std::shared_ptr<Device> device) {
      return make_cpu_backend(std::move(device), /*threads=*/1);
    });
    const auto stream = TokenStream::synthetic(vocabulary, 500 * length + 1, /*seed=*/3);
    const Datasets data{TokenDataset(stream, length, 0, 490), TokenDataset(stream, length, 490, 7)};
    Trainer trainer(state.model(), *backend, state.strategy(), state.optimizer(), *state.mesh(),
                    state.stage(), data,
                    {.batches = plan_batches(mesh.data * run.micro_batches, 1, mesh.data),
                     .learning_rate = {.peak = 0.01, .schedule = LearningRateSchedule::constant},
                     .loss_scaling = run.loss_scaling});
    Seen& seen = ranks[static_cast<std::size_t>(transport.rank())];
    for (int step = 1; step < run.steps; ++step) {
      seen.steps.push_back(trainer.step());
    }
    seen.before = values_of(state, *backend);
    Fault fault(*backend, run.faulty_parameter);
    const bool is_faulty = transport.rank() == run.faulty_rank;
    seen.steps.push_back(trainer.step({.units = is_faulty ? &fault : nullptr}));
    EXPECT_EQ(fault.done(), is_faulty) << "this rank has no " << run.faulty_parameter;
    seen.values = values_of(state, *backend);
    seen.loss_scale = trainer.loss_scaler().scale();
    seen.validation_loss = trainer.validate();
  });
  return ranks;
}

TrainingSetup setup_for(const std::string& mesh, DType precision = DType::f64) {
  return {
      .model = {.layers = 4, .heads = 4, .width = 16, .vocabulary = vocabulary, .context = length},
      .precision = precision,
      .mesh = parse_mesh(mesh)};
}

// Whatever several ranks hold of the same elements has the same bits on all of them.
void expect_same_copies(const std::vector<Seen>& ranks) {
  std::map<Place, std::size_t> first;
  int copies = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& [place, values] : ranks[rank].values) {
      const auto [other, is_new] = first.try_emplace(place, rank);
      copies += is_new ? 0 : 1;
      EXPECT_EQ(values, ranks[other->second].values.at(place))
          << place.first << " on ranks " << other->second << " and " << rank;
    }
  }
  EXPECT_GT(copies, 0);
}

// --- Loss and norm -------------------------------------------------------------------------------

// The rank that logs may be any: all know the loss, the norm and the validation loss, and they are
// the single process's. A norm that counts a tied weight or a replica twice is not.
TEST(ParallelModel, EveryRankKnowsTheLossAndTheNormOfASingleProcess) {
  const std::vector<Seen> control = train({.setup = setup_for("dp=1"), .micro_batches = 4});
  for (const char* mesh :
       {"tp=2", "tp=4", "pp=2", "pp=4", "pp=2,tp=2", "dp=2,tp=2", "dp=2,pp=2,tp=2"}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const std::string strategy : {"ddp", "fsdp"}) {
        Training run{.setup = setup_for(mesh)};
        if (sequence_parallel && run.setup.mesh->tensor == 1) {
          continue;
        }
        SCOPED_TRACE(std::string(mesh) + (sequence_parallel ? " sp " : " ") + strategy);
        run.setup.sequence_parallel = sequence_parallel;
        run.setup.strategy.name = strategy;
        run.micro_batches = 4 / run.setup.mesh->data;
        const std::vector<Seen> ranks = train(run);
        for (const Seen& seen : ranks) {
          for (std::size_t step = 0; step < seen.steps.size(); ++step) {
            const StepMetrics& expected = control[0].steps[step];
            EXPECT_NEAR(seen.steps[step].loss, expected.loss, 1e-12 * expected.loss);
            EXPECT_NEAR(seen.steps[step].grad_norm, expected.grad_norm, 1e-12 * expected.grad_norm);
            EXPECT_EQ(seen.steps[step].loss, ranks[0].steps[step].loss);
            EXPECT_EQ(seen.steps[step].grad_norm, ranks[0].steps[step].grad_norm);
          }
          EXPECT_NEAR(seen.validation_loss, control[0].validation_loss,
                      1e-12 * control[0].validation_loss);
          EXPECT_EQ(seen.validation_loss, ranks[0].validation_loss);
        }
      }
    }
  }
}

// --- Copies --------------------------------------------------------------------------------------

// The tied weight on the first and the last stage, norms on all tensor ranks, and everything on all
// data ranks.
TEST(ParallelModel, CopiesAreTheSameBitsAfterTenSteps) {
  for (const auto& [mesh, sequence_parallel, strategy, schedule] :
       {std::tuple("tp=2", false, "ddp", "1f1b"),
        {"tp=2", true, "ddp", "1f1b"},
        {"tp=4", true, "ddp", "1f1b"},
        {"pp=2", false, "ddp", "1f1b"},
        {"pp=4", false, "ddp", "zb-h1"},
        {"pp=2", false, "ddp", "interleaved-1f1b"},
        {"dp=2,pp=2,tp=2", true, "fsdp", "1f1b"},
        {"dp=2,pp=2,tp=2", true, "zero1", "zb-h2"}}) {
    SCOPED_TRACE(std::string(mesh) + " " + strategy + " " + schedule);
    Training run{.setup = setup_for(mesh, DType::f32), .steps = 10};
    run.setup.sequence_parallel = sequence_parallel;
    run.setup.strategy.name = strategy;
    run.setup.pipeline.schedule = schedule;
    run.setup.model.dropout = 0.1;
    expect_same_copies(train(run));
  }
}

// --- Overflow ------------------------------------------------------------------------------------

struct Spoiled {
  std::string mesh;
  std::string strategy;
  bool sequence_parallel;
  int rank;
  std::string parameter;
};

// An infinite gradient on one rank: every rank skips the step, keeps its parameters and goes on
// with the same scale.
TEST(ParallelModel, AnOverflowOnOneRankIsSkippedByAll) {
  for (const Spoiled& spoiled : {Spoiled{"dp=4", "ddp", false, 1, "h.0.mlp.c_fc.weight"},
                                 Spoiled{"dp=4", "zero1", false, 1, "h.0.mlp.c_fc.weight"},
                                 Spoiled{"dp=4", "zero2", false, 1, "h.0.mlp.c_fc.weight"},
                                 Spoiled{"dp=4", "fsdp", false, 1, "h.0.mlp.c_fc.weight"},
                                 Spoiled{"tp=4", "ddp", false, 1, "h.0.mlp.c_fc.weight"},
                                 Spoiled{"tp=4", "ddp", true, 1, "h.0.mlp.c_fc.weight"},
                                 Spoiled{"tp=4", "ddp", false, 1, "h.0.ln_1.weight"},
                                 Spoiled{"tp=4", "ddp", true, 1, "h.0.ln_1.weight"},
                                 Spoiled{"pp=4", "ddp", false, 1, "h.1.ln_1.weight"},
                                 Spoiled{"pp=4", "ddp", false, 3, "wte.weight"},
                                 Spoiled{"dp=2,tp=2", "zero2", true, 1, "h.3.mlp.c_fc.bias"},
                                 Spoiled{"dp=2,tp=2", "fsdp", false, 1, "ln_f.bias"},
                                 Spoiled{"pp=2,tp=2", "ddp", true, 1, "h.0.attn.c_proj.bias"}}) {
    SCOPED_TRACE(spoiled.mesh + " " + spoiled.strategy + ", " + spoiled.parameter);
    Training run{
        .setup = setup_for(spoiled.mesh, DType::f32),
        .loss_scaling = {.mode = LossScaling::dynamic, .initial_scale = 1024, .hysteresis = 1},
        .faulty_rank = spoiled.rank,
        .faulty_parameter = spoiled.parameter};
    run.setup.strategy.name = spoiled.strategy;
    run.setup.sequence_parallel = spoiled.sequence_parallel;
    for (const Seen& seen : train(run)) {
      EXPECT_FALSE(seen.steps[1].skipped);
      EXPECT_TRUE(seen.steps[2].skipped);
      EXPECT_EQ(seen.loss_scale, 512);
      EXPECT_EQ(seen.values, seen.before);
    }
  }
}

// --- Memory --------------------------------------------------------------------------------------

// With 16 micro-batches a stage holds no more than with 8, tokens and targets included: 1F1B
// bounds what is under way by the stages, however far ahead the first one could run.
TEST(ParallelModel, PeakMemoryDoesNotGrowWithMicroBatches) {
  const auto peaks = [](const std::string& schedule, int micro_batches) {
    Training run{.setup = setup_for("pp=4"), .micro_batches = micro_batches, .steps = 1};
    run.setup.pipeline.schedule = schedule;
    std::vector<std::int64_t> of_stages;
    for (const Seen& seen : train(run)) {
      of_stages.push_back(seen.steps[0].ledger.total_peak.value);
    }
    return of_stages;
  };
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    EXPECT_EQ(peaks(schedule, 16), peaks(schedule, 8)) << schedule;
  }
  const std::vector<std::int64_t> eight = peaks("fill-drain", 8);
  const std::vector<std::int64_t> sixteen = peaks("fill-drain", 16);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    EXPECT_GT(sixteen[stage], eight[stage]);
  }
}

}  // namespace
}  // namespace ringworld
