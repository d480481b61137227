// ringworld verify: does a strategy compute what a single process would?
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/json_file.h"
#include "cli/rank.h"
#include "training/parity.h"
#include "training/token_stream.h"

namespace ringworld {
namespace {

// A relative error that rounding alone may cause; faults are factors, far above it. In the 16-bit
// formats a parameter may be rounded to the neighbour of the control's when a sum differs in its
// last bits, so that is one rounding of the format.
double bound_of(DType precision) {
  switch (precision) {
    case DType::f64:
      return 1e-12;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 1e-5;
  }
}

// f16 is verified with a scaled loss, as it is trained: small gradients would be zero.
double loss_scale_of(DType precision) {
  return precision == DType::f16 ? 1024 : 1;
}

constexpr std::size_t differences_shown = 10;
// More rows than these are summed up by strategy and precision.
constexpr std::size_t rows_shown = 48;

struct Row {
  std::string strategy;
  DType precision;
  OptimizerKind optimizer;
  std::int64_t accumulation;
  Recomputation recomputation;
  Offload offload;
  OffloadTo offload_to;
  ParallelLayout layout;
  ParityResult result;
  // Whether it has ddp's bits; nothing: no ddp was verified, or this is not the same sum.
  std::optional<bool> equals_ddp = {};
  bool must_equal_ddp = false;

  bool passed() const { return result.passed() && (!must_equal_ddp || equals_ddp == true); }
};

std::string offload_text(const Row& row) {
  return row.offload == Offload::none
             ? "none"
             : fmt::format("{}:{}", name_of(row.offload), name_of(row.offload_to));
}

std::string error_text(double error) {
  return error == 0 ? "0" : fmt::format("{:.1e}", error);
}

// A row that breaks in its first step has counted nothing.
bool has_counted(const ParityResult& r) {
  return r.state_expected.value > 0;
}

std::string bytes_text(const ParityResult& r) {
  if (!has_counted(r)) {
    return "-";
  }
  return r.bytes_sent == r.bytes_expected
             ? fmt::format("{} = theory", r.bytes_sent.value)
             : fmt::format("{}, theory {}", r.bytes_sent.value, r.bytes_expected.value);
}

std::string memory_text(const ParityResult& r) {
  if (!has_counted(r)) {
    return "-";
  }
  return r.state_held == r.state_expected
             ? fmt::format("{} = theory", to_string(r.state_held))
             : fmt::format("{}, theory {}", to_string(r.state_held), to_string(r.state_expected));
}

std::string bits_text(const Row& row) {
  if (row.result.bit_equal) {
    return "equal";
  }
  return !row.equals_ddp ? "differ" : *row.equals_ddp ? "ddp's" : "differ";
}

std::string table_of(const std::vector<Row>& rows) {
  const bool more = std::ranges::any_of(rows, [](const Row& row) {
    return row.offload != Offload::none || to_string(row.recomputation) != "none";
  });
  const bool meshes =
      std::ranges::any_of(rows, [](const Row& row) { return row.layout.mesh.has_value(); });
  std::vector<Table::Column> columns{{"strategy"}};
  if (meshes) {
    columns.push_back({"mesh"});
  }
  columns.insert(columns.end(), {{"precision"}, {"micro", Align::right}});
  if (more) {
    columns.insert(columns.end(), {{"recompute"}, {"offload"}});
  }
  columns.insert(columns.end(), {{"error", Align::right},
                                 {"worst tensor"},
                                 {"bits"},
                                 {"bytes sent"},
                                 {"state"},
                                 {"verdict"}});
  Table table(columns);
  for (const Row& row : rows) {
    const ParityResult& r = row.result;
    std::vector<std::string> cells{row.strategy};
    if (meshes) {
      cells.push_back(to_string(row.layout));
    }
    cells.push_back(fmt::format("{} {}", name_of(row.precision), name_of(row.optimizer)));
    cells.push_back(fmt::format("{}", row.accumulation));
    if (more) {
      cells.insert(cells.end(), {to_string(row.recomputation), offload_text(row)});
    }
    cells.insert(cells.end(), {error_text(r.largest.relative_error), r.largest.what, bits_text(row),
                               bytes_text(r), memory_text(r), row.passed() ? "equal" : "WRONG"});
    table.add_row(cells);
  }
  return table.text();
}

// One line for each strategy and precision.
std::string summary_of(const std::vector<Row>& rows) {
  Table table({{"strategy"},
               {"precision"},
               {"combinations", Align::right},
               {"equal", Align::right},
               {"largest error", Align::right},
               {"worst tensor"},
               {"ddp's bits", Align::right},
               {"bytes = theory", Align::right},
               {"state = theory", Align::right},
               {"verdict"}});
  std::vector<std::pair<std::string, DType>> keys;
  for (const Row& row : rows) {
    const std::pair key(row.strategy, row.precision);
    if (std::ranges::find(keys, key) == keys.end()) {
      keys.push_back(key);
    }
  }
  for (const auto& [strategy, precision] : keys) {
    std::vector<const Row*> of_key;
    for (const Row& row : rows) {
      if (row.strategy == strategy && row.precision == precision) {
        of_key.push_back(&row);
      }
    }
    const auto count = [&](auto holds) {
      return fmt::format("{}", std::ranges::count_if(of_key, holds));
    };
    const auto compared =
        std::ranges::count_if(of_key, [](const Row* row) { return row->equals_ddp.has_value(); });
    const Row& worst = **std::ranges::max_element(
        of_key, {}, [](const Row* row) { return row->result.largest.relative_error; });
    const bool passed = std::ranges::all_of(of_key, [](const Row* row) { return row->passed(); });
    table.add_row(
        {strategy, std::string(name_of(precision)), fmt::format("{}", of_key.size()),
         count([](const Row* row) { return row->passed(); }),
         error_text(worst.result.largest.relative_error), worst.result.largest.what,
         fmt::format("{} of {}", count([](const Row* row) { return row->equals_ddp == true; }),
                     compared),
         count([](const Row* row) { return row->result.bytes_sent == row->result.bytes_expected; }),
         count([](const Row* row) { return row->result.state_held == row->result.state_expected; }),
         passed ? "equal" : "WRONG"});
  }
  return table.text();
}

std::string broken_text(const Row& row) {
  const ParityResult& r = row.result;
  std::string text =
      fmt::format("\n{} on {} in {}, accumulation {}, recomputation {}, offload {}:\n",
                  row.strategy, to_string(row.layout), name_of(row.precision), row.accumulation,
                  to_string(row.recomputation), offload_text(row));
  if (r.bytes_sent != r.bytes_expected) {
    text += fmt::format("  sent {}, theory says {}\n", to_string(r.bytes_sent),
                        to_string(r.bytes_expected));
  }
  if (r.state_held != r.state_expected) {
    text += fmt::format("  parameters, gradients and optimizer hold {}, theory says {}\n",
                        to_string(r.state_held), to_string(r.state_expected));
  }
  if (row.must_equal_ddp && row.equals_ddp != true) {
    text += "  not the bits of ddp, although contributions are added in the order of the ranks\n";
  }
  if (r.broken.empty()) {
    return text;
  }
  Table table({{"wrong, worst first"},
               {"step", Align::right},
               {"rank", Align::right},
               {"relative error", Align::right},
               {"ratio to the control", Align::right}});
  for (std::size_t i = 0; i < std::min(r.broken.size(), differences_shown); ++i) {
    const Difference& d = r.broken[i];
    table.add_row({d.what, fmt::format("{}", d.step), fmt::format("{}", d.rank),
                   error_text(d.relative_error), fmt::format("{:.6g}", d.ratio)});
  }
  text += table.text();
  if (r.broken.size() > differences_shown) {
    text += fmt::format("and {} more\n", r.broken.size() - differences_shown);
  }
  return text;
}

nlohmann::ordered_json json_of(const Difference& d) {
  return {{"what", d.what},
          {"step", d.step},
          {"rank", d.rank},
          {"relative_error", d.relative_error},
          {"ratio", d.ratio}};
}

nlohmann::ordered_json json_of(const Row& row) {
  const ParityResult& r = row.result;
  nlohmann::ordered_json json = {{"strategy", row.strategy},
                                 {"layout", to_string(row.layout)},
                                 {"precision", name_of(row.precision)},
                                 {"optimizer", name_of(row.optimizer)},
                                 {"accumulation", row.accumulation},
                                 {"checkpoint_activations", to_string(row.recomputation)},
                                 {"offload", name_of(row.offload)},
                                 {"offload_to", name_of(row.offload_to)},
                                 {"passed", row.passed()},
                                 {"bound", bound_of(row.precision)},
                                 {"largest", json_of(r.largest)},
                                 {"bit_equal", r.bit_equal},
                                 {"steps_compared", r.steps_compared},
                                 {"tensors", r.tensors},
                                 {"bytes_sent", r.bytes_sent.value},
                                 {"bytes_expected", r.bytes_expected.value},
                                 {"state_bytes", r.state_held.value},
                                 {"state_bytes_expected", r.state_expected.value},
                                 {"broken", nlohmann::ordered_json::array()}};
  if (row.equals_ddp) {
    json["equals_ddp"] = *row.equals_ddp;
  }
  for (const Difference& d : r.broken) {
    json["broken"].push_back(json_of(d));
  }
  return json;
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
  rank.on_rank_0([&] {
    if (!o.json.empty()) {
      write_json(o.json, report);  // a path that cannot be written shows now, not after the work
    }
  });
  if (rank.prints()) {
    std::cout << fmt::format(
                     "{}: {} parameters; {} step{} against a single process on rank 0; {}\n\n",
                     model->name(), human_count(static_cast<double>(model->parameter_count())),
                     o.steps, o.steps == 1 ? "" : "s", rank.description())
              << std::flush;
  }

  std::vector<Row> rows;
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
                                .bound = bound_of(training.precision),
                                .plant = o.plant};
    const auto make_backend = [&](std::shared_ptr<Device> device) {
      return rank.make_backend(std::move(device));
    };
    Row row{
        .strategy = training.strategy.name,
        .precision = training.precision,
        .optimizer = o.optimizer.kind,
        .accumulation = combination.batches.accumulation_steps,
        .recomputation = combination.recomputation,
        .offload = training.offload.what,
        .offload_to = training.offload.where,
        .layout = combination.layout,
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
    if (rank.prints() && count > rows_shown && rows.size() % every == 0 && rows.size() < count) {
      std::cout << fmt::format("{} of {} combinations, {}\n", rows.size(), count,
                               passed ? "all equal so far" : "not all equal")
                << std::flush;
    }
  }

  if (rank.prints()) {
    std::cout
        << (rows.size() <= rows_shown ? table_of(rows) : summary_of(rows))
        << fmt::format(
               "\nbits: equal to the control's in every loss, gradient and parameter, or ddp's, or "
               "they differ from both;\n"
               "bytes sent: for gradients, parameters and activations, by all ranks in all steps; "
               "state: parameters,\ngradients and optimizer between steps, on all ranks; both held "
               "against the formulas;\n"
               "micro: micro-batches per step and rank; error: the largest |a - b| / |b| of a "
               "tensor, equal up to\n");
    for (const DType precision : o.precisions) {
      std::cout << fmt::format("{} in {}{}", error_text(bound_of(precision)), name_of(precision),
                               precision == o.precisions.back() ? "\n" : ", ");
    }
    if (left_out > 0) {
      std::cout << fmt::format(
          "{} combination{} not supported and left out; `ringworld capabilities` says why\n",
          left_out, left_out == 1 ? " is" : "s are");
    }
    for (const Row& row : rows) {
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
      for (const Row& row : rows) {
        report["rows"].push_back(json_of(row));
      }
      write_json(o.json, report);
    }
  });
  rank.explain();
  return passed ? ExitCode::ok : ExitCode::failed;
}

}  // namespace ringworld
