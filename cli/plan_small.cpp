#include "cli/plan_small.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/help_formatter.h"
#include "cli/plan_time_text.h"
#include "cli/plan_verify.h"
#include "planner/runtime_model.h"

namespace ringworld {

// Two ranks along each axis that is used, as the tiny models' two key-value heads and four layers
// allow; data parallelism alone has four.
SmallTraining in_small(const Transformer& model, const Layout& found) {
  SmallTraining small{.model = find_transformer(model.gated_mlp ? "llama-tiny" : "gpt2-tiny"),
                      .layout = found,
                      .left_out = {}};
  constexpr std::int64_t few = 2;
  Layout& l = small.layout;
  l.tensor = std::min(found.tensor, few);
  l.pipeline = std::min(found.pipeline, few);
  l.data = std::min(found.data, l.tensor * l.pipeline == 1 ? 2 * few : few);
  l.chunks = std::min(found.chunks, few);
  l.context = l.expert = 1;
  l.micro_batch = std::min(found.micro_batch, few);
  const std::int64_t micro_batches = l.pipeline > 1 ? 4 : std::min(found.micro_batches(), few);
  l.global_batch = l.data * l.micro_batch * micro_batches;
  l.sequence_length = 64;
  l.gradient_precision = gradient_dtype(l.precision);

  std::vector<std::string> left_out;
  if (found.context > 1) {
    left_out.emplace_back("context parallelism left out");
  }
  if (found.expert > 1) {
    left_out.emplace_back("expert parallelism left out");
  }
  if (l.schedule.starts_with("zb-") && !runtime_refusal(small.model, l).empty()) {
    left_out.push_back(fmt::format("1f1b for {}, whose weights' gradients come too late for {}",
                                   found.schedule, name_of(found.sharding)));
    l.schedule = "1f1b";
    l.chunks = 1;
  }
  small.left_out = fmt::format("{}", fmt::join(left_out, "; "));
  return small;
}

std::string small_text(const Transformer& model, const Layout& layout) {
  const SmallTraining small = in_small(model, layout);
  const std::string title =
      fmt::format("The best, here and in small{}:",
                  small.left_out.empty() ? "" : fmt::format(" ({})", small.left_out));
  return fmt::format("{}\n{}", wrap(title, 98, 0),
                     command_text(command_of(small.model, small.layout, {})));
}

}  // namespace ringworld
