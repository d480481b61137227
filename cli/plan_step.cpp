// ringworld plan step: how long one optimizer step takes, where its time goes, and what that is in
// throughput.
#include <iostream>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "cli/plan_machine.h"
#include "cli/plan_setup.h"
#include "cli/plan_time_chart.h"
#include "cli/plan_time_text.h"
#include "planner/collectives.h"
#include "planner/flops.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

struct PlannedStep {
  PlanSetup setup;
  SettledMachine machine;
  StepTime time = {};
  Throughput reached = {};
  std::vector<CollectiveUse> collectives = {};
  Bytes memory = {};
};

PlannedStep planned(const PlanStepOptions& o) {
  PlannedTraining asked = o;
  asked.gpu.clear();  // settled below, with more of it
  PlannedStep plan{.setup = settle(asked), .machine = settle_machine(o, o.program)};
  const PlanSetup& s = plan.setup;
  const Machine& machine = plan.machine.machine;
  const Software& software = plan.machine.software;
  plan.time = plan_step(s.model, s.layout, machine, software);
  plan.reached = throughput(s.model, s.layout, machine, software, plan.time.seconds);
  plan.collectives =
      collectives_of_step(s.model, s.layout, machine, software, plan.time.slowest_stage);
  plan.memory = plan_memory(s.model, s.layout, o.memory).worst().device.total();
  return plan;
}

std::string part_table(const StepTime& time) {
  Table table({{"part"},
               {"time", Align::right},
               {"share", Align::right},
               {"hidden", Align::right},
               {"what"}});
  for (const StepPart part : all_step_parts) {
    const PartTime& one = time[part];
    if (one.exposed + one.hidden > 0) {
      table.add_row({std::string(name_of(part)), seconds_text(one.exposed),
                     fmt::format("{:.1f} %", 100 * one.exposed / time.seconds),
                     one.hidden > 0 ? seconds_text(one.hidden) : "",
                     std::string(meaning_of(part))});
    }
  }
  table.add_row({"in all", seconds_text(time.seconds), "", "", ""});
  return table.text();
}

std::string collective_table(const std::vector<CollectiveUse>& uses) {
  if (uses.empty()) {
    return "No communication.\n";
  }
  Table table({{"axis"},
               {"collective"},
               {"of"},
               {"ranks", Align::right},
               {"nodes", Align::right},
               {"bytes", Align::right},
               {"times", Align::right},
               {"each", Align::right},
               {"how"}});
  for (const CollectiveUse& use : uses) {
    table.add_row({std::string(name_of(use.axis)), std::string(use.operation),
                   std::string(use.what), fmt::format("{}", use.group.ranks),
                   fmt::format("{}", use.group.nodes()),
                   to_string(Bytes(static_cast<std::int64_t>(use.bytes))),
                   fmt::format("{:.0f}", use.times), seconds_text(use.each.seconds),
                   fmt::format("{}{}{}", use.each.algorithm, use.each.protocol.empty() ? "" : " ",
                               use.each.protocol)});
  }
  return table.text();
}

std::string flops_table(const Transformer& model, std::int64_t length, double tokens_of_gpu,
                        double peak) {
  Table table({{"convention"},
               {"FLOPs a token", Align::right},
               {"TFLOP/s, GPU", Align::right},
               {"of peak", Align::right},
               {"counts"}});
  for (const FlopConvention convention : all_flop_conventions) {
    const double flops = model_flops_per_token(model, length, convention);
    table.add_row({std::string(name_of(convention)), fmt::format("{:.4g}", flops),
                   fmt::format("{:.1f}", flops * tokens_of_gpu / 1e12),
                   fmt::format("{:.1f} %", 100 * flops * tokens_of_gpu / peak),
                   short_text_of(convention)});
  }
  return table.text();
}

std::string text_of(const PlannedStep& p) {
  const Layout& l = p.setup.layout;
  const double each = p.reached.tokens_per_second / static_cast<double>(l.gpus());
  const double there = p.setup.budget.value > 0 ? static_cast<double>(p.setup.budget.value)
                                                : p.machine.machine.memory.value;
  const auto needed = static_cast<double>(p.memory.value);
  std::string text = plan_title("Step", p.setup, p.machine.machine);
  text += fmt::format("\n{}", stated_table(p.setup.stated, p.machine.stated));
  text += fmt::format("\n{}\nSlowest stage: {}.\n\n{}\n", part_table(p.time), p.time.slowest_stage,
                      collective_table(p.collectives));
  text += fmt::format(
      "tokens/s       {:.4g}, {:.4g} for each GPU\n"
      "MFU            {:.1f} %, attention over what a token may see; {:.1f} % over all positions\n"
      "HFU            {:.1f} %, recomputation included\n\n",
      p.reached.tokens_per_second, each, 100 * p.reached.mfu(),
      100 * p.reached.model_flops_full_attention / p.reached.peak, 100 * p.reached.hfu());
  text += flops_table(p.setup.model, l.sequence_length, each, p.reached.peak);
  text += fmt::format(
      "\nMemory: {:.1f} of {:.1f} GB{}.\n", needed / 1e9, there / 1e9,
      needed <= there ? "" : ": it does not fit; ringworld plan memory says what would");
  text += bubble_text(p.time);
  return text + fmt::format("\nWhat the times rest on:\n{}", stated_table(p.machine.constants));
}

Json json_of(const PlannedStep& p) {
  Json parts = Json::array();
  for (const StepPart part : all_step_parts) {
    parts.push_back({{"part", name_of(part)},
                     {"exposed_s", p.time[part].exposed},
                     {"hidden_s", p.time[part].hidden}});
  }
  Json collectives = Json::array();
  for (const CollectiveUse& use : p.collectives) {
    collectives.push_back({{"axis", name_of(use.axis)},
                           {"collective", use.operation},
                           {"of", use.what},
                           {"ranks", use.group.ranks},
                           {"nodes", use.group.nodes()},
                           {"bytes", use.bytes},
                           {"times", use.times},
                           {"seconds_each", use.each.seconds},
                           {"algorithm", use.each.algorithm},
                           {"protocol", use.each.protocol}});
  }
  Json flops = Json::array();
  for (const FlopConvention convention : all_flop_conventions) {
    flops.push_back(
        {{"convention", name_of(convention)},
         {"counts", describe(convention)},
         {"per_token",
          model_flops_per_token(p.setup.model, p.setup.layout.sequence_length, convention)}});
  }
  return {{"schema", "ringworld.plan_step"},
          {"version", 1},
          {"model", p.setup.model.name},
          {"gpus", p.setup.layout.gpus()},
          {"layout", layout_json(p.setup.layout)},
          {"inputs", stated_json(p.setup.stated)},
          {"machine", stated_json(p.machine.stated)},
          {"constants", stated_json(p.machine.constants)},
          {"seconds", p.time.seconds},
          {"slowest_stage", p.time.slowest_stage},
          {"parts", std::move(parts)},
          {"collectives", std::move(collectives)},
          {"tokens_per_second", p.reached.tokens_per_second},
          {"mfu", p.reached.mfu()},
          {"mfu_full_attention", p.reached.model_flops_full_attention / p.reached.peak},
          {"hfu", p.reached.hfu()},
          {"model_flops", std::move(flops)},
          {"hardware_flops_per_token",
           hardware_flops_per_token(p.setup.model, p.setup.layout.sequence_length,
                                    p.setup.layout.recompute, p.machine.software.flash)},
          {"memory_bytes", p.memory.value},
          {"fits", static_cast<double>(p.memory.value) <= p.machine.machine.memory.value}};
}

TimeBars bars_of(const PlannedStep& p) {
  TimeBars bars{
      .title = fmt::format("A step of {}, {}", p.setup.model.name, seconds_text(p.time.seconds)),
      .subtitle = fmt::format("{} on {} {}", describe(p.setup.layout), p.setup.layout.gpus(),
                              p.machine.machine.name),
      .bars = {}};
  for (const StepPart part : all_step_parts) {
    const PartTime& one = p.time[part];
    if (one.exposed + one.hidden > 0) {
      bars.bars.push_back({std::string(name_of(part)), one.exposed, one.hidden});
    }
  }
  return bars;
}

}  // namespace

ExitCode run_plan_step(const PlanStepOptions& o, Transport& transport) {
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  check_writable("--svg", o.svg);
  check_writable("--json", o.json);
  const PlannedStep plan = planned(o);
  if (o.json != "-") {
    std::cout << text_of(plan) << std::flush;
  }
  write_file("--svg", o.svg, o.svg.empty() ? std::string() : to_svg(bars_of(plan)));
  if (!o.json.empty()) {
    write_json(o.json, json_of(plan));
  }
  return ExitCode::ok;
}

}  // namespace ringworld
