// ringworld plan memory: what one GPU holds of a training, item by item; whether it fits, and what
// would make it fit.
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/json_file.h"
#include "cli/output_file.h"
#include "cli/plan_chart.h"
#include "cli/plan_memory_json.h"
#include "cli/plan_memory_text.h"
#include "cli/plan_setup.h"
#include "cli/plan_verify.h"
#include "planner/conventions.h"
#include "planner/memory_advice.h"
#include "planner/runtime_memory.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

// Parameters as they were given, where they were: 70B are 70 x 10^9 to a calculator.
std::int64_t stated_parameters(const PlanMemoryOptions& o, const Transformer& model) {
  return o.model.parameters.empty() ? count_parameters(model).total()
                                    : parse_count(o.model.parameters, "--params");
}

RuntimeOptions runtime_options(const PlanMemoryOptions& o) {
  return {.threads = o.threads, .optimizer_states = o.memory.optimizer_states};
}

LessonQuestion lesson_question(const PlanMemoryOptions& o, const PlanSetup& setup) {
  constexpr std::int64_t optimizers[] = {0, 4, 8};
  LessonQuestion question{.parameters = stated_parameters(o, setup.model),
                          .precision_bytes = size_of(setup.layout.precision).value,
                          .optimizer_bytes = optimizers[o.memory.optimizer_states],
                          .sharding = setup.layout.sharding,
                          .gpus = setup.layout.gpus()};
  if (o.layout.sequence_length > 0) {
    question.shape = LessonShape{.sequence_length = o.layout.sequence_length,
                                 .batch = setup.layout.micro_batch,
                                 .hidden = setup.model.width,
                                 .layers = setup.model.layers};
  }
  return question;
}

DeepSpeedQuestion deepspeed_question(const PlanMemoryOptions& o, const PlanSetup& setup) {
  const std::int64_t gpus = setup.layout.gpus();
  const std::int64_t per_node = o.gpus_per_node == 0 ? gpus : o.gpus_per_node;
  if (gpus % per_node != 0) {
    throw UsageError(
        fmt::format("--gpus-per-node: '{}': does not divide the {} GPUs", per_node, gpus));
  }
  return {.parameters = stated_parameters(o, setup.model),
          .largest_layer = o.largest_layer.empty()
                               ? largest_layer(setup.model)
                               : parse_count(o.largest_layer, "--largest-layer"),
          .gpus_per_node = per_node,
          .nodes = gpus / per_node};
}

ConventionReport convention_report(const PlanMemoryOptions& o, const PlanSetup& setup) {
  switch (o.convention) {
    case Convention::lesson:
      return lesson_memory(lesson_question(o, setup));
    case Convention::deepspeed:
      return deepspeed_memory(deepspeed_question(o, setup));
    case Convention::megatron:
    case Convention::none:
      break;
  }
  // Megatron-LM always pads.
  const std::int64_t multiple = o.memory.pad_vocabulary == 1 ? 128 : o.memory.pad_vocabulary;
  return megatron_memory(setup.model, setup.layout,
                         padded_vocabulary(setup.model.vocabulary, setup.layout.tensor, multiple));
}

PlanAdvice advice_of(const PlanSetup& setup, const MemoryOptions& memory, const MemoryPlan& plan) {
  PlanAdvice advice;
  if (setup.budget.value == 0) {
    return advice;
  }
  if (plan.worst().device.total() > setup.budget) {
    advice.changes = what_would_fit(setup.model, setup.layout, memory, setup.budget);
  }
  advice.as_laid_out = smallest_data_degree(setup.model, setup.layout, memory, setup.budget);
  advice.frugal =
      smallest_data_degree(setup.model, most_frugal(setup.layout), memory, setup.budget);
  return advice;
}

// A bar for each power of two of data-parallel ranks, each with as many micro-batches.
StackedBars bars_of(const PlanMemoryOptions& o, const PlanSetup& setup) {
  StackedBars bars{.title = fmt::format("Memory of a GPU: {}", setup.model.name),
                   .subtitle = fmt::format("{}; by number of GPUs", describe(setup.layout)),
                   .x_title = "GPUs",
                   .budget = setup.budget,
                   .budget_name = setup.device};
  const bool ours = o.accounting == Accounting::ringworld;
  for (std::size_t i = 0; i < (ours ? category_count : memory_item_count); ++i) {
    bars.parts.emplace_back(ours ? name_of(static_cast<Category>(i))
                                 : name_of(static_cast<MemoryItem>(i)));
  }
  constexpr int most_bars = 11;
  for (std::int64_t data = 1; std::ssize(bars.bars) < most_bars; data *= 2) {
    Layout layout = setup.layout;
    layout.data = data;
    layout.shard_group = 0;
    layout.global_batch = setup.layout.micro_batch * setup.layout.micro_batches() * data;
    if (!refusal(layout, setup.model).empty()) {
      continue;  // fewer ranks than experts are spread over
    }
    StackedBar bar{.label = fmt::format("{}", layout.gpus())};
    if (ours) {
      const RuntimeMemory memory = plan_fullest_stage(setup.model, layout, runtime_options(o));
      bar.parts.assign(memory.device.peak.begin(), memory.device.peak.end());
    } else {
      const ItemBytes& items = plan_memory(setup.model, layout, o.memory).worst().device;
      bar.parts.assign(items.of.begin(), items.of.end());
    }
    bars.bars.push_back(std::move(bar));
  }
  return bars;
}

}  // namespace

ExitCode run_plan_memory(const PlanMemoryOptions& o, Transport& transport) {
  const PlanSetup setup = settle(o);
  const bool prints = transport.rank() == 0;
  if (prints) {
    check_writable("--svg", o.svg);
    check_writable("--json", o.json);
  }
  PlanMemoryResult result{
      .setup = setup, .accounting = o.accounting, .gpus_per_node = o.gpus_per_node};
  if (o.convention != Convention::none) {
    result.convention = convention_report(o, setup);
    if (o.convention == Convention::lesson && setup.budget.value > 0) {
      result.lesson_gpus =
          lesson_smallest_gpus(lesson_question(o, setup), static_cast<double>(setup.budget.value));
    }
  }
  result.plan = plan_memory(setup.model, setup.layout, o.memory);
  if (o.accounting == Accounting::ringworld) {
    result.runtime = plan_fullest_stage(setup.model, setup.layout, runtime_options(o));
    result.command = command_of(setup.model, setup.layout, runtime_options(o));
  } else {
    result.advice = advice_of(setup, o.memory, result.plan);
  }
  if (o.verify) {
    result.verifications = verify_memory(setup.model, setup.layout, runtime_options(o), transport);
  }
  const bool holds = std::ranges::all_of(result.verifications, &PlanVerification::holds);
  if (prints) {
    if (o.json != "-") {
      std::cout << text_of(result) << std::flush;
    }
    write_file("--svg", o.svg, o.svg.empty() ? std::string() : to_svg(bars_of(o, setup)));
    if (!o.json.empty()) {
      write_json(o.json, json_of(result));
    }
  }
  return holds ? ExitCode::ok : ExitCode::failed;
}

}  // namespace ringworld
