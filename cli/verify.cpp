// ringworld verify: does a strategy compute what a single process would?
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "cli/rank.h"
#include "cli/verify_text.h"
#include "training/parity.h"
#include "training/token_stream.h"

namespace ringworld {
namespace {

// f16 is verified with a scaled loss, as it is trained: small gradients would be zero.
double loss_scale_of(DType precision) {
  return precision == DType::f16 ? 1024 : 1;
}

// All combinations that were asked for and are supported, ddp alone first. Throws UsageError with
// the reason when none is.
struct Combination {
  TrainingSetup training;
  Recomputation recomputation;
  ParallelLayout layout;
  BatchPlan batches;
};

// How often the micro-batches are accumulated, for so many data ranks.
std::vector<BatchPlan> plans_for(const VerifyOptions& o, int data_ranks) {
  std::vector<BatchPlan> plans;
  for (const std::int64_t accumulation : o.accumulation) {
    plans.push_back(
        plan_batches(accumulation * o.micro_batch * data_ranks, o.micro_batch, data_ranks));
  }
  if (o.global_batch > 0) {
    plans.push_back(plan_batches(o.global_batch, o.micro_batch, data_ranks));
  }
  return plans;
}

std::vector<Combination> combinations(const VerifyOptions& o, int world_size, int& left_out) {
  std::vector<Combination> all;
  std::string why;
  int refused_count = 0;
  const auto add = [&](Combination next) {
    const std::string refused = refusal(next.training, world_size, next.batches.accumulation_steps);
    if (refused.empty()) {
      all.push_back(std::move(next));
    } else {
      ++refused_count;
      why = why.empty() ? refused : why;
    }
  };
  struct Batches {
    ParallelLayout layout;
    BatchPlan plan;
  };
  std::vector<Batches> all_batches;
  for (const ParallelLayout& layout : layouts_of(o.layouts, world_size)) {
    const MeshShape mesh = layout.mesh.value_or(MeshShape{.data = world_size});
    check_mesh(mesh, world_size);
    for (const BatchPlan& plan : plans_for(o, mesh.data)) {
      all_batches.push_back({layout, plan});
    }
  }
  for (const DType precision : o.precisions) {
    for (const auto& [layout, batches] : all_batches) {
      for (const std::string& strategy : o.strategies) {
        for (const Recomputation& recomputation : o.recomputations) {
          for (const Offload offload : o.offloads) {
            for (const OffloadTo target : o.offload_targets) {
              if (offload == Offload::none && target != o.offload_targets.front()) {
                continue;  // nothing goes anywhere
              }
              Combination next{.training = {.model = o.model,
                                            .precision = precision,
                                            .strategy = o.strategy,
                                            .optimizer = o.optimizer,
                                            .offload = o.offload,
                                            .seed = o.seed},
                               .recomputation = recomputation,
                               .layout = layout,
                               .batches = batches};
              layout.apply(next.training);
              next.training.model.recompute_attention = recomputation.attention;
              next.training.strategy.name = strategy;
              next.training.offload.what = offload;
              next.training.offload.where = offload == Offload::none ? OffloadTo::host : target;
              if (offload != Offload::none && target == OffloadTo::file) {
                if (o.offload.path.empty()) {
                  next.training.offload.path = std::filesystem::temp_directory_path();
                }
              } else {
                next.training.offload.path.clear();
              }
              add(std::move(next));
            }
          }
        }
      }
    }
  }
  if (all.empty()) {
    throw UsageError(why);
  }
  left_out = refused_count;
  return all;
}

// Whether a strategy adds what ddp adds, so that in the order of the ranks it has ddp's bits: it
// does not where sums over micro-batches of sums over ranks take the place of the reverse, or
// replicas are summed by themselves.
bool adds_as_ddp(const Combination& combination) {
  const StrategyOptions& strategy = combination.training.strategy;
  const auto& mesh = combination.layout.mesh;
  return strategy.shard_group == 0 && (!mesh || mesh->model_ranks() == 1) &&
         (!reduces_every_micro_batch(strategy) || combination.batches.accumulation_steps == 1);
}

}  // namespace

ExitCode run_verify(const VerifyOptions& o, Transport& transport) {
  const std::unique_ptr<Model> model = make_model(o.model, o.precisions.front());
  model->check_sequence_length(o.sequence_length);
  int left_out = 0;
  const std::vector<Combination> combinations_asked =
      combinations(o, transport.world_size(), left_out);
  std::int64_t samples = 0;
  for (const Combination& combination : combinations_asked) {
    samples = std::max(samples, combination.batches.global_batch * o.steps);
  }
  const auto stream =
      o.data.empty()
          ? TokenStream::synthetic(model->vocabulary(), samples * o.sequence_length + 1, o.seed)
          : TokenStream::open(o.data);
  stream->check_vocabulary(model->vocabulary());
  const TokenDataset data = whole_dataset(stream, o.sequence_length);

  Rank rank(o.resources, transport);
  nlohmann::ordered_json report = {{"schema", "ringworld.verify"},
                                   {"version", 1},
                                   {"conditions", rank.conditions()},
                                   {"model", model->name()},
                                   {"parameters", model->parameter_count()},
                                   {"sequence_length", o.sequence_length},
                                   {"steps", o.steps},
                                   {"seed", o.seed}};
  rank.check_same_everywhere(fmt::format("{}data={}\n", o.settings, data.fingerprint()));
  rank.on_rank_0([&] { check_writable("--json", o.json); });
  if (rank.prints()) {
    std::cout << fmt::format(
                     "{}: {} parameters; {} step{} against a single process on rank 0; {}\n\n",
                     model->name(), human_count(static_cast<double>(model->parameter_count())),
                     o.steps, o.steps == 1 ? "" : "s", rank.description())
              << std::flush;
  }

  std::vector<VerifyRow> rows;
  bool passed = true;
  std::map<std::pair<DType, std::int64_t>, std::uint64_t> ddp;  // its bits
  for (const Combination& combination : combinations_asked) {
    const TrainingSetup& training = combination.training;
    const ParityOptions options{.training = training,
                                .learning_rate = o.learning_rate,
                                .clip_norm = o.clip_norm,
                                .batches = combination.batches,
                                .checkpoint = combination.recomputation.checkpoint,
                                .loss_scale = loss_scale_of(training.precision),
                                .steps = o.steps,
                                .bound = rounding_bound(training),
                                .plant = o.plant};
    const auto make_backend = [&](std::shared_ptr<Device> device) {
      return rank.make_backend(std::move(device));
    };
    VerifyRow row{
        .strategy = training.strategy.name,
        .precision = training.precision,
        .optimizer = o.optimizer.kind,
        .accumulation = combination.batches.accumulation_steps,
        .recomputation = combination.recomputation,
        .offload = training.offload.what,
        .offload_to = training.offload.where,
        .layout = combination.layout,
        .bound = options.bound,
        .result = check_parity(options, data, rank.backend(), rank.communicator(), make_backend)};
    const std::pair key(row.precision, row.accumulation);
    const auto known = ddp.find(key);
    if (known == ddp.end() && row.strategy == "ddp" && adds_as_ddp(combination)) {
      ddp.emplace(key, row.result.digest);
    } else if (known != ddp.end() && adds_as_ddp(combination)) {
      row.equals_ddp = row.result.digest == known->second;
      row.must_equal_ddp = o.resources.reproducible && !o.plant;
    }
    passed = passed && row.passed();
    rows.push_back(std::move(row));
    const std::size_t count = combinations_asked.size();
    const std::size_t every = std::max<std::size_t>(1, count / 12);
    if (rank.prints() && count > verify_rows_shown && rows.size() % every == 0 &&
        rows.size() < count) {
      std::cout << fmt::format("{} of {} combinations, {}\n", rows.size(), count,
                               passed ? "all equal so far" : "not all equal")
                << std::flush;
    }
  }

  if (rank.prints()) {
    std::cout
        << (rows.size() <= verify_rows_shown ? table_of(rows) : summary_of(rows))
        << fmt::format(
               "\nbits: equal to the control's in every loss, gradient and parameter, or ddp's, or "
               "they differ from both;\n"
               "bytes sent: for gradients, parameters and activations, by all ranks in all steps; "
               "state: parameters,\ngradients and optimizer between steps, on all ranks; both held "
               "against the formulas;\n"
               "micro: micro-batches per step and rank; error: the largest |a - b| / |b| of a "
               "tensor, equal up to\n");
    for (const DType precision : o.precisions) {
      std::cout << fmt::format("{} in {}{}", bounds_text(rows, precision), name_of(precision),
                               precision == o.precisions.back() ? "\n" : ", ");
    }
    if (left_out > 0) {
      std::cout << fmt::format(
          "{} combination{} not supported and left out; `ringworld capabilities` says why\n",
          left_out, left_out == 1 ? " is" : "s are");
    }
    for (const VerifyRow& row : rows) {
      if (!row.passed()) {
        std::cout << broken_text(row);
      }
    }
    std::cout << std::flush;
  }
  rank.on_rank_0([&] {
    if (!o.json.empty()) {
      report["passed"] = passed;
      report["rows"] = nlohmann::ordered_json::array();
      for (const VerifyRow& row : rows) {
        report["rows"].push_back(json_of(row));
      }
      write_json(o.json, report);
    }
  });
  rank.explain();
  return passed ? ExitCode::ok : ExitCode::failed;
}

}  // namespace ringworld
