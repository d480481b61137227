// ringworld plan cost: hours, days, dollars and energy of a whole training.
#include <iostream>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/help_formatter.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "cli/plan_machine.h"
#include "cli/plan_setup.h"
#include "cli/plan_time_chart.h"
#include "cli/plan_time_text.h"
#include "planner/cost.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

struct PlannedCost {
  PlanSetup setup;
  SettledMachine machine;
  StepTime time = {};
  Throughput reached = {};
  CostQuestion question = {};
  Constant price = {};
  Constant watts = {};
  Bytes memory = {};  // of the fullest GPU

  double room() const {
    return setup.budget.value > 0 ? static_cast<double>(setup.budget.value)
                                  : machine.machine.memory.value;
  }
  bool fits() const { return static_cast<double>(memory.value) <= room(); }
};

PlannedCost planned(const PlanCostOptions& o) {
  PlannedTraining asked = o;
  asked.gpu.clear();  // settled below, with more of it
  PlannedCost plan{.setup = settle(asked), .machine = settle_machine(o, o.program)};
  const PlanSetup& s = plan.setup;
  const Machine& machine = plan.machine.machine;
  plan.time = plan_step(s.model, s.layout, machine, plan.machine.software);
  plan.reached = throughput(s.model, s.layout, machine, plan.machine.software, plan.time.seconds);
  plan.memory = plan_memory(s.model, s.layout, o.memory).worst().device.total();
  plan.price = o.price ? Constant{*o.price, "--price"} : machine.price;
  plan.watts = watts_of_gpu(machine);
  plan.question = {.tokens = static_cast<double>(parse_count(o.tokens, "--tokens")),
                   .tokens_per_second = plan.reached.tokens_per_second,
                   .gpus = s.layout.gpus(),
                   .price = plan.price.value,
                   .watts = plan.watts.value,
                   .overhead = o.overhead};
  std::vector<Stated>& stated = plan.setup.stated;
  stated.push_back({"tokens", count_text(parse_count(o.tokens, "--tokens")), "--tokens"});
  stated.push_back(
      {"price", plan.price.value > 0 ? fmt::format("${:.2f} an hour", plan.price.value) : "unknown",
       plan.price.value > 0 ? plan.price.source : "no dollars without one; --price, --hardware"});
  stated.push_back({"power",
                    plan.watts.value > 0 ? fmt::format("{:.0f} W", plan.watts.value) : "unknown",
                    plan.watts.source});
  if (plan.watts.value > 0) {
    stated.push_back({"PUE", fmt::format("{:.3g}", o.overhead), "--overhead; default 1.1"});
  }
  return plan;
}

std::string text_of(const PlannedCost& p) {
  Table table({{"efficiency"},
               {"hours", Align::right},
               {"days", Align::right},
               {"GPU-hours", Align::right},
               {"dollars", Align::right},
               {"MWh", Align::right}});
  std::string reasons;
  for (const EfficiencyCase which : all_efficiency_cases) {
    const Cost cost = cost_of(p.question, which);
    table.add_row(
        {std::string(name_of(which)), fmt::format("{:.0f}", cost.hours),
         fmt::format("{:.1f}", cost.days()), human_count(cost.gpu_hours),
         cost.dollars ? human_count(*cost.dollars) : "unknown",
         cost.kilowatt_hours ? fmt::format("{:.4g}", *cost.kilowatt_hours / 1000) : "unknown"});
    reasons +=
        fmt::format("{:<9} {}\n", name_of(which), wrap(std::string(reason_of(which)), 90, 10));
  }
  const std::string warning =
      p.fits() ? std::string()
               : fmt::format(
                     "\nIt does not fit: {:.1f} of {:.1f} GB; ringworld plan memory says what "
                     "would.\n",
                     static_cast<double>(p.memory.value) / 1e9, p.room() / 1e9);
  return fmt::format("{}\n{}\nstep {}, {:.4g} tokens/s, MFU {:.1f} %, HFU {:.1f} %\n{}\n{}\n{}{}",
                     plan_title("Cost", p.setup, p.machine.machine),
                     stated_table(p.setup.stated, p.machine.stated), seconds_text(p.time.seconds),
                     p.reached.tokens_per_second, 100 * p.reached.mfu(), 100 * p.reached.hfu(),
                     bubble_text(p.time), table.text(), reasons, warning);
}

Json json_of(const PlannedCost& p) {
  Json cases = Json::object();
  for (const EfficiencyCase which : all_efficiency_cases) {
    const Cost cost = cost_of(p.question, which);
    cases[std::string(name_of(which))] = {
        {"hours", cost.hours},
        {"days", cost.days()},
        {"gpu_hours", cost.gpu_hours},
        {"dollars", cost.dollars ? Json(*cost.dollars) : Json()},
        {"kilowatt_hours", cost.kilowatt_hours ? Json(*cost.kilowatt_hours) : Json()},
        {"reason", reason_of(which)}};
  }
  return {{"schema", "ringworld.plan_cost"},
          {"version", 1},
          {"model", p.setup.model.name},
          {"gpus", p.setup.layout.gpus()},
          {"layout", layout_json(p.setup.layout)},
          {"inputs", stated_json(p.setup.stated)},
          {"machine", stated_json(p.machine.stated)},
          {"constants", stated_json(p.machine.constants)},
          {"step_seconds", p.time.seconds},
          {"tokens_per_second", p.reached.tokens_per_second},
          {"mfu", p.reached.mfu()},
          {"memory_bytes", p.memory.value},
          {"fits", p.fits()},
          {"cost", std::move(cases)}};
}

// From an eighth of the data-parallel ranks to eight times as many, the same batch.
CostCurve curve_of(const PlannedCost& p) {
  const bool priced = p.question.price > 0;
  CostCurve curve{.title = fmt::format("{} tokens through {}",
                                       count_text(static_cast<std::int64_t>(p.question.tokens)),
                                       p.setup.model.name),
                  .subtitle = fmt::format("{}; expected, over numbers of {}",
                                          describe(p.setup.layout), p.machine.machine.name),
                  .unit = priced ? "dollars" : "GPU-hours",
                  .points = {}};
  for (int power = 3; power >= -3; --power) {
    Layout layout = p.setup.layout;
    layout.data = power >= 0 ? layout.data << power : layout.data >> -power;
    layout.shard_group = 0;
    if (layout.data < 1 || !refusal(layout, p.setup.model).empty()) {
      continue;
    }
    const double seconds =
        plan_step(p.setup.model, layout, p.machine.machine, p.machine.software).seconds;
    CostQuestion question = p.question;
    question.gpus = layout.gpus();
    question.tokens_per_second =
        throughput(p.setup.model, layout, p.machine.machine, p.machine.software, seconds)
            .tokens_per_second;
    const Cost cost = cost_of(question, EfficiencyCase::expected);
    curve.points.push_back({.days = cost.days(),
                            .cost = cost.dollars.value_or(cost.gpu_hours),
                            .label = fmt::format("{}", layout.gpus()),
                            .asked = power == 0});
  }
  return curve;
}

}  // namespace

ExitCode run_plan_cost(const PlanCostOptions& o, Transport& transport) {
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  check_writable("--svg", o.svg);
  check_writable("--json", o.json);
  const PlannedCost plan = planned(o);
  if (o.json != "-") {
    std::cout << text_of(plan) << std::flush;
  }
  write_file("--svg", o.svg, o.svg.empty() ? std::string() : to_svg(curve_of(plan)));
  if (!o.json.empty()) {
    write_json(o.json, json_of(plan));
  }
  return ExitCode::ok;
}

}  // namespace ringworld
