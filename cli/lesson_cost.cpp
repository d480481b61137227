// Of the lesson: the exercise on cost, held against two trainings whose hours were reported.
#include <optional>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/lesson.h"
#include "planner/cost.h"
#include "planner/hardware.h"
#include "planner/step.h"
#include "planner/transformer.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr double million = 1e6;
// The share of the dense 16-bit rate that is assumed: what Llama 3 reports is 38 to 43 %.
constexpr double utilization = 0.4;

struct Rent {
  const char* gpu;
  double dollars;  // per hour, the exercise's
};
constexpr Rent rents[] = {{"A100-80GB", 2.00}, {"H100-80GB", 3.50}};

struct Training {
  const char* model;
  double tokens;
  double gpu_hours;  // reported
  const char* gpu;
  double price;  // dollars per GPU-hour
  const char* source;
};
constexpr const char* llama = "llama-3-405b";
constexpr Training trainings[] = {
    {llama, 15.6e12, 30.84e6, "H100", 3.50, "Llama 3.1's model card"},
    {"deepseek-v3", 14.8e12, 2.788e6, "H800", 2.00, "DeepSeek-V3, table 1"}};

// 6 operations for each token and parameter that it passes through (Kaplan et al., 2020).
double flops_of(const Transformer& model, double tokens) {
  return 6 * static_cast<double>(count_active_parameters(model).total()) * tokens;
}

// At the assumed share of the GPU's rate, and nothing lost.
Cost cost_at_utilization(const Machine& gpu, double flops, double tokens, double dollars) {
  return cost_of({.tokens = tokens,
                  .tokens_per_second = gpu.bf16.value * utilization / (flops / tokens),
                  .gpus = 1,
                  .price = dollars},
                 EfficiencyCase::high);
}

// Of Llama 3 405B in its own layout, as ringworld plan cost expects it.
Cost planned_cost(const Machine& gpu, const Transformer& model, double tokens, double dollars) {
  const Layout layout = lesson_llama3_layout();
  const Software software;
  const double seconds = plan_step(model, layout, gpu, software).seconds;
  return cost_of(
      {.tokens = tokens,
       .tokens_per_second = throughput(model, layout, gpu, software, seconds).tokens_per_second,
       .gpus = layout.gpus(),
       .price = dollars},
      EfficiencyCase::expected);
}

}  // namespace

LessonPart lesson_cost(LessonRanks& /*ranks*/) {
  Table table({{"model"},
               {"on"},
               {"GPU-hours M", Align::right},
               {"$/h", Align::right},
               {"cost $M", Align::right},
               {"by"}});
  Json rows = Json::array();
  const auto add = [&](const Training& training, std::string_view gpu, double price,
                       const Cost& cost, const std::string& by) {
    table.add_row({training.model, std::string(gpu),
                   fmt::format("{:.3f}", cost.gpu_hours / million), fmt::format("{:.2f}", price),
                   fmt::format("{:.3f}", *cost.dollars / million), by});
    rows.push_back({{"model", training.model},
                    {"gpu", gpu},
                    {"gpu_hours", cost.gpu_hours},
                    {"dollars_per_hour", price},
                    {"dollars", *cost.dollars},
                    {"by", by}});
  };
  const Machines machines;
  std::string shares;
  for (const Training& training : trainings) {
    const Transformer& model = find_transformer(training.model);
    const double flops = flops_of(model, training.tokens);
    for (const Rent& rent : rents) {
      const Machine& gpu = machines.find(rent.gpu);
      add(training, rent.gpu, rent.dollars,
          cost_at_utilization(gpu, flops, training.tokens, rent.dollars),
          fmt::format("6 x active parameters x tokens at {:.0f} %", 100 * utilization));
    }
    if (model.name == llama) {
      const Rent& rent = rents[1];
      add(training, rent.gpu, rent.dollars,
          planned_cost(machines.find(rent.gpu), model, training.tokens, rent.dollars),
          "our step time for its layout, expected");
    }
    add(training, training.gpu, training.price,
        {.gpu_hours = training.gpu_hours, .dollars = training.gpu_hours * training.price},
        training.source);
    const double peak = machines.find(fmt::format("{}-80GB", training.gpu)).bf16.value;
    shares += fmt::format("{}{}: {:.2e} operations, {:.1f} % of the peak rate over all hours",
                          shares.empty() ? "" : "; ", training.model, flops,
                          100 * flops / (training.gpu_hours * 3600 * peak));
  }
  return {
      .asked = fmt::format(
          "What training costs at A100 ${:.2f} and H100 ${:.2f} an hour: from exact parameter "
          "counts, the GPUs' dense bf16 rates and an assumed {:.0f} % of them; as ringworld plan "
          "cost expects it for Llama 3's layout; and from reported hours, Llama 3 405B (about $100 "
          "M) and DeepSeek-V3 ($5.576 M).",
          rents[0].dollars, rents[1].dollars, 100 * utilization),
      .table = table.text(),
      .found = {fmt::format(
          "Turned round: {}. Reported hours hold restarts, evaluation and further "
          "stages of training, too.",
          shares)},
      .practice =
          "failed runs, people, storage and idle GPUs cost, too; large renters pay other prices.",
      .json = {{"utilization", utilization}, {"rows", rows}}};
}

}  // namespace ringworld
