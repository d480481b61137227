// Of the lesson: the exercise on cost, held against two trainings whose hours were reported.
#include <optional>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/lesson.h"
#include "planner/transformer.h"
#include "runtime/hardware.h"

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
  double dollars;  // per GPU-hour
  const char* source;
};
constexpr Training trainings[] = {
    {"llama3-405b", 15.6e12, 30.84e6, "H100", 3.50, "Llama 3.1's model card"},
    {"deepseek-v3", 14.8e12, 2.788e6, "H800", 2.00, "DeepSeek-V3, table 1"}};

// 6 operations for each token and parameter that it passes through (Kaplan et al., 2020).
double flops_of(const Transformer& model, double tokens) {
  return 6 * static_cast<double>(count_active_parameters(model).total()) * tokens;
}

double hours_on(const Accelerator& gpu, double flops) {
  return flops / (*gpu.rates.bf16 * utilization) / 3600;
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
  const auto add = [&](const Training& training, std::string_view gpu, double hours, double dollars,
                       const std::string& by) {
    const double cost = hours * dollars;
    table.add_row({training.model, std::string(gpu), fmt::format("{:.3f}", hours / million),
                   fmt::format("{:.2f}", dollars), fmt::format("{:.3f}", cost / million), by});
    rows.push_back({{"model", training.model},
                    {"gpu", gpu},
                    {"gpu_hours", hours},
                    {"dollars_per_hour", dollars},
                    {"dollars", cost},
                    {"by", by}});
  };
  std::string shares;
  for (const Training& training : trainings) {
    const Transformer& model = find_transformer(training.model);
    const double flops = flops_of(model, training.tokens);
    for (const Rent& rent : rents) {
      add(training, rent.gpu, hours_on(find_accelerator(rent.gpu), flops), rent.dollars,
          fmt::format("6 x active parameters x tokens at {:.0f} %", 100 * utilization));
    }
    add(training, training.gpu, training.gpu_hours, training.dollars, training.source);
    // An H800 computes as an H100 does; its links are slower.
    const double peak = *find_accelerator("H100-80GB").rates.bf16;
    shares += fmt::format("{}{}: {:.2e} operations, {:.1f} % of the peak rate over all hours",
                          shares.empty() ? "" : "; ", training.model, flops,
                          100 * flops / (training.gpu_hours * 3600 * peak));
  }
  return {
      .asked = fmt::format(
          "What training costs at A100 ${:.2f} and H100 ${:.2f} an hour: from exact parameter "
          "counts, the GPUs' dense bf16 rates and an assumed {:.0f} % of them; and from reported "
          "hours, Llama 3 405B (about $100 M) and DeepSeek-V3 ($5.576 M).",
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
