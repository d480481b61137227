#include "cli/plan_time_text.h"

#include <fmt/format.h>

#include "cli/help_formatter.h"
#include "planner/model_input.h"

namespace ringworld {

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) {
    return fmt::format("{:.3g} us", 1e6 * seconds);
  }
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.4g} s", seconds);
}

std::string plan_title(std::string_view what, const PlanSetup& setup, const Machine& machine) {
  return fmt::format("{} of {} ({} parameters) on {} {}\n{}\n", what, setup.model.name,
                     count_text(count_parameters(setup.model).total()), setup.layout.gpus(),
                     machine.name, describe(setup.layout));
}

std::string_view meaning_of(StepPart part) {
  constexpr std::string_view texts[step_part_count] = {
      "matrix products with weights, forward and backward",
      "scores, softmax and weighted values",
      "norms, activations, residual sums, loss",
      "from one kernel to the next",
      "what backward computes again",
      "communication of ranks that split layers",
      "keys and values of a cut sequence",
      "tokens to experts and back",
      "messages between stages",
      "gradients and weights of data-parallel ranks",
      "a stage without work",
      "the update, on the GPU",
      "transfers, and the update on the host"};
  return texts[static_cast<std::size_t>(part)];
}

std::string short_text_of(FlopConvention convention) {
  constexpr std::string_view texts[] = {
      "all positions",    "what a token may see", "no attention, no embedding", "6 N + 12 L a d s",
      "of a GPT's shape", "and attention again",  "and layers again (Eq. 3)"};
  return std::string(texts[static_cast<std::size_t>(convention)]);
}

std::string stated_table(const std::vector<Stated>& stated, const std::vector<Stated>& more) {
  std::vector<Stated> all = stated;
  all.insert(all.end(), more.begin(), more.end());
  return stated_table(all);
}

std::string command_text(const std::string& command) {
  constexpr std::size_t indent = 6;
  constexpr std::size_t widest = 98;  // and the backslash
  std::string text = fmt::format("  {}", wrap(command, widest - indent, indent));
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       end = text.find('\n', end + 3)) {
    text.insert(end, " \\");
  }
  return text + "\n";
}

nlohmann::ordered_json stated_json(const std::vector<Stated>& stated) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Stated& one : stated) {
    json.push_back({{"what", one.what}, {"value", one.value}, {"source", one.source}});
  }
  return json;
}

nlohmann::ordered_json layout_json(const Layout& l) {
  return {{"data", l.data},
          {"tensor", l.tensor},
          {"pipeline", l.pipeline},
          {"context", l.context},
          {"expert", l.expert},
          {"chunks", l.chunks},
          {"schedule", l.schedule},
          {"sequence_parallel", l.sequence_parallel},
          {"sharding", name_of(l.sharding)},
          {"micro_batch", l.micro_batch},
          {"micro_batches", l.micro_batches()},
          {"global_batch", l.global_batch},
          {"sequence_length", l.sequence_length},
          {"recompute", name_of(l.recompute)},
          {"offload", name_of(l.offload)},
          {"offload_to", l.offload == PlannedOffload::none ? ""
                         : l.offload_to_file               ? "file"
                                                           : "host"}};
}

std::string bubble_text(const StepTime& time) {
  const double share = time[StepPart::bubble].exposed / time.seconds;
  return share < 0.15
             ? std::string()
             : fmt::format(
                   "The pipeline idles {:.0f} % of a step; more micro-batches, by a larger "
                   "--global-batch, make that less.\n",
                   100 * share);
}

}  // namespace ringworld
