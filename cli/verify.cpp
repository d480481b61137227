// ringworld verify: does a strategy compute what a single process would?
#include <cstdio>
#include <iostream>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/json_file.h"
#include "cli/rank.h"
#include "runtime/cpus.h"
#include "training/parity.h"
#include "training/token_stream.h"

namespace ringworld {
namespace {

// A relative error that rounding alone may cause; faults are factors, far above it.
double bound_of(DType precision) {
  return precision == DType::f64 ? 1e-12 : 1e-5;
}

constexpr std::size_t differences_shown = 10;

struct Row {
  std::string strategy;
  DType precision;
  OptimizerKind optimizer;
  std::int64_t accumulation;
  ParityResult result;
};

std::string error_text(double error) {
  return error == 0 ? "0" : fmt::format("{:.1e}", error);
}

std::string bytes_text(const ParityResult& r) {
  return r.bytes_sent == r.bytes_expected
             ? fmt::format("{} = theory", r.bytes_sent.value)
             : fmt::format("{}, theory {}", r.bytes_sent.value, r.bytes_expected.value);
}

std::string table_of(const std::vector<Row>& rows) {
  Table table({{"strategy"},
               {"precision"},
               {"micro", Align::right},
               {"error", Align::right},
               {"worst tensor"},
               {"bits"},
               {"bytes sent"},
               {"verdict"}});
  for (const Row& row : rows) {
    const ParityResult& r = row.result;
    table.add_row(
        {row.strategy, fmt::format("{} {}", name_of(row.precision), name_of(row.optimizer)),
         fmt::format("{}", row.accumulation), error_text(r.largest.relative_error), r.largest.what,
         r.bit_equal ? "equal" : "differ", bytes_text(r), r.passed() ? "equal" : "WRONG"});
  }
  return table.text();
}

std::string broken_text(const Row& row) {
  const ParityResult& r = row.result;
  std::string text = fmt::format("\n{} in {}, accumulation {}:\n", row.strategy,
                                 name_of(row.precision), row.accumulation);
  if (r.bytes_sent != r.bytes_expected) {
    text += fmt::format("  sent {} for gradients, theory says {}\n", to_string(r.bytes_sent),
                        to_string(r.bytes_expected));
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
                                 {"precision", name_of(row.precision)},
                                 {"optimizer", name_of(row.optimizer)},
                                 {"accumulation", row.accumulation},
                                 {"passed", r.passed()},
                                 {"bound", bound_of(row.precision)},
                                 {"largest", json_of(r.largest)},
                                 {"bit_equal", r.bit_equal},
                                 {"steps_compared", r.steps_compared},
                                 {"tensors", r.tensors},
                                 {"bytes_sent", r.bytes_sent.value},
                                 {"bytes_expected", r.bytes_expected.value},
                                 {"broken", nlohmann::ordered_json::array()}};
  for (const Difference& d : r.broken) {
    json["broken"].push_back(json_of(d));
  }
  return json;
}

}  // namespace

ExitCode run_verify(const VerifyOptions& o, Transport& transport) {
  const std::unique_ptr<Model> model = make_model(o.model, o.precisions.front());
  model->check_sequence_length(o.sequence_length);
  const std::int64_t per_micro_step = o.micro_batch * transport.world_size();
  std::vector<BatchPlan> plans;
  for (const std::int64_t accumulation : o.accumulation) {
    plans.push_back(
        plan_batches(accumulation * per_micro_step, o.micro_batch, transport.world_size()));
  }
  if (o.global_batch > 0) {
    plans.push_back(plan_batches(o.global_batch, o.micro_batch, transport.world_size()));
  }
  std::int64_t samples = 0;
  for (const BatchPlan& plan : plans) {
    samples = std::max(samples, plan.global_batch * o.steps);
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
  for (const DType precision : o.precisions) {
    for (const BatchPlan& plan : plans) {
      const ParityOptions options{.model = o.model,
                                  .precision = precision,
                                  .strategy = o.strategy,
                                  .optimizer = o.optimizer,
                                  .learning_rate = o.learning_rate,
                                  .clip_norm = o.clip_norm,
                                  .batches = plan,
                                  .steps = o.steps,
                                  .seed = o.seed,
                                  .bound = bound_of(precision),
                                  .plant = o.plant};
      const auto make_control = [&] {
        return make_cpu_backend(Device::create({}), rank.backend().threads());
      };
      rows.push_back(
          {o.strategy.name, precision, o.optimizer.kind, plan.accumulation_steps,
           check_parity(options, data, rank.backend(), rank.communicator(), make_control)});
      passed = passed && rows.back().result.passed();
    }
  }

  if (rank.prints()) {
    std::cout
        << table_of(rows)
        << fmt::format(
               "\nbits: whether every loss, gradient and parameter has the very same bits as the "
               "control's;\n"
               "bytes sent: for gradients, by all ranks in all steps, held against the formula;\n"
               "micro: micro-batches per step and rank; error: the largest |a - b| / |b| of a "
               "tensor, equal up to\n{} in f64, {} in f32\n",
               error_text(bound_of(DType::f64)), error_text(bound_of(DType::f32)));
    for (const Row& row : rows) {
      if (!row.result.passed()) {
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
