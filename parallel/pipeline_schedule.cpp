#include "parallel/pipeline_schedule.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {

PipelineSchedule fill_drain(const PipelineShape& shape);      // pipeline_emit.cpp
PipelineSchedule one_f_one_b(const PipelineShape& shape);     // pipeline_emit.cpp
PipelineSchedule interleaved(const PipelineShape& shape);     // pipeline_emit.cpp
PipelineSchedule zero_bubble_h1(const PipelineShape& shape);  // pipeline_emit.cpp
PipelineSchedule zero_bubble_h2(const PipelineShape& shape);  // pipeline_emit.cpp

namespace {

std::string one_chunk_only(const PipelineShape& shape) {
  return shape.chunks == 1 ? ""
                           : fmt::format(
                                 "it has 1 chunk on each stage, asked for {}; "
                                 "interleaved-1f1b has several",
                                 shape.chunks);
}

std::string interleaved_refuses(const PipelineShape& shape) {
  if (shape.chunks < 2) {
    return "it needs 2 chunks on each stage or more, asked for 1; with 1 chunk, use 1f1b";
  }
  // A group of as many micro-batches as stages goes through a chunk before the next chunk begins.
  if (shape.micro_batches % shape.stages != 0) {
    const int below = shape.micro_batches / shape.stages * shape.stages;
    const std::string nearest_multiples =
        below == 0 ? fmt::format("{}", shape.stages)
                   : fmt::format("{} or {}", below, below + shape.stages);
    return fmt::format(
        "it needs a multiple of the number of stages as micro-batches, {} stages do not divide {} "
        "micro-batches; use {} micro-batches, or 1f1b",
        shape.stages, shape.micro_batches, nearest_multiples);
  }
  return "";
}

double whole_bubble(const PipelineShape& shape, const PipelineTimes& times) {
  return (shape.stages - 1) * times.work();
}

// (p - 1)(TF + TB - h TW), where the weight halves that wait fill the gaps of the others: there
// must be micro-batches enough to fill the pipeline, and the gaps must not be overfull.
std::optional<double> zero_bubble(const PipelineShape& shape, const PipelineTimes& times, int h) {
  const double each = times.forward + times.backward_input - h * times.backward_weight;
  if (shape.micro_batches < h * (shape.stages - 1) + 1 || each < 0 ||
      times.backward_weight > times.forward) {
    return std::nullopt;
  }
  return (shape.stages - 1) * each;
}

std::deque<PipelineKind>& table() {
  static std::deque<PipelineKind> kinds = {
      {.name = "fill-drain",
       .source = "GPipe, Huang et al., NeurIPS 2019, figure 2",
       .refuses = one_chunk_only,
       .emit = fill_drain,
       .bubble = {.text = "(p - 1)(TF + TB + TW)", .value = whole_bubble},
       .live = {"m", [](const PipelineShape& shape, int) { return shape.micro_batches; }}},
      {.name = "1f1b",
       .source = "PipeDream-Flush, Narayanan et al., SC 2021, section 2.2.1, figure 4",
       .refuses = one_chunk_only,
       .emit = one_f_one_b,
       .bubble = {.text = "(p - 1)(TF + TB + TW)", .value = whole_bubble},
       .live = {"min(p - s, m)",
                [](const PipelineShape& shape, int stage) {
                  return std::min(shape.stages - stage, shape.micro_batches);
                }}},
      {.name = "interleaved-1f1b",
       .source = "Megatron-LM, Narayanan et al., SC 2021, section 2.2.2, figure 4",
       .usual_chunks = 2,
       .refuses = interleaved_refuses,
       .emit = interleaved,
       .bubble = {.text = "(p - 1)(TF + TB + TW) / v",
                  .value =
                      [](const PipelineShape& shape, const PipelineTimes& times) {
                        return whole_bubble(shape, times) / shape.chunks;
                      }},
       .live = {"min(2 (p - s - 1) + (v - 1) p + 1, m v) chunks",
                [](const PipelineShape& shape, int stage) {
                  return std::min(
                      2 * (shape.stages - stage - 1) + (shape.chunks - 1) * shape.stages + 1,
                      shape.micro_batches * shape.chunks);
                }}},
      {.name = "zb-h1",
       .source = "Zero Bubble Pipeline Parallelism, Qi et al., ICLR 2024, section 2.1, figure 3",
       .refuses = one_chunk_only,
       .emit = zero_bubble_h1,
       .bubble = {.text = "(p - 1)(TF + TB - TW)",
                  .condition = "m >= p, TW <= TF, TW <= TF + TB",
                  .value = [](const PipelineShape& shape,
                              const PipelineTimes& times) { return zero_bubble(shape, times, 1); }},
       .live = {"min(p, m)", [](const PipelineShape& shape,
                                int) { return std::min(shape.stages, shape.micro_batches); }}},
      {.name = "zb-h2",
       .source = "Zero Bubble Pipeline Parallelism, Qi et al., ICLR 2024, section 2.2, figure 3",
       .refuses = one_chunk_only,
       .emit = zero_bubble_h2,
       .bubble = {.text = "(p - 1)(TF + TB - 2 TW)",
                  .condition = "m >= 2 p - 1, TW <= TF, 2 TW <= TF + TB",
                  .value = [](const PipelineShape& shape,
                              const PipelineTimes& times) { return zero_bubble(shape, times, 2); }},
       .live = {"min(2 p - 1, m)",
                [](const PipelineShape& shape, int) {
                  return std::min(2 * shape.stages - 1, shape.micro_batches);
                }}},
  };
  return kinds;
}

}  // namespace

std::string_view name_of(PipelineWork work) {
  constexpr std::string_view names[] = {"forward", "backward", "backward_input", "backward_weight"};
  return names[static_cast<std::size_t>(work)];
}

std::vector<std::vector<int>> looped_parts(const PipelineShape& shape) {
  std::vector<std::vector<int>> parts(static_cast<std::size_t>(shape.stages));
  for (int stage = 0; stage < shape.stages; ++stage) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      parts[stage].push_back(chunk * shape.stages + stage);
    }
  }
  return parts;
}

std::string describe(const PipelineSchedule& schedule, int stage, const PipelineAction& action) {
  return fmt::format("stage {}, {} of micro-batch {}{}", stage, name_of(action.work),
                     action.micro_batch,
                     schedule.shape.chunks > 1 ? fmt::format(", chunk {}", action.chunk) : "");
}

// --- The chain ----------------------------------------------------------------------------------

PipelineChain::PipelineChain(const PipelineSchedule& schedule)
    : parts_(schedule.parts),
      places_(static_cast<std::size_t>(schedule.shape.parts()), PipelinePlace{-1, -1}) {
  const auto [stages, micro_batches, chunks] = schedule.shape;
  if (static_cast<int>(parts_.size()) != stages) {
    throw std::invalid_argument(
        fmt::format("{} stages hold parts, there are {}", parts_.size(), stages));
  }
  for (int stage = 0; stage < stages; ++stage) {
    if (static_cast<int>(parts_[stage].size()) != chunks) {
      throw std::invalid_argument(fmt::format("stage {} holds {} chunks, each holds {}", stage,
                                              parts_[stage].size(), chunks));
    }
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int part = parts_[stage][chunk];
      if (part < 0 || part >= schedule.shape.parts()) {
        throw std::invalid_argument(fmt::format("stage {}, chunk {}: is part {}, there are 0 to {}",
                                                stage, chunk, part, schedule.shape.parts() - 1));
      }
      if (places_[part].stage >= 0) {
        throw std::invalid_argument(
            fmt::format("stage {}, chunk {}: is part {}, which stage {} has as chunk {}", stage,
                        chunk, part, places_[part].stage, places_[part].chunk));
      }
      places_[part] = {stage, chunk};
    }
  }
}

std::optional<PipelinePlace> PipelineChain::place(int part) const {
  return part < 0 || part >= static_cast<int>(places_.size()) ? std::nullopt
                                                              : std::optional(places_[part]);
}

std::optional<PipelinePlace> PipelineChain::source(int stage, const PipelineAction& action) const {
  if (action.work == PipelineWork::backward_weight) {
    return std::nullopt;
  }
  return place(part(stage, action.chunk) + (action.work == PipelineWork::forward ? -1 : 1));
}

std::optional<PipelinePlace> PipelineChain::destination(int stage,
                                                        const PipelineAction& action) const {
  if (action.work == PipelineWork::backward_weight) {
    return std::nullopt;
  }
  return place(part(stage, action.chunk) + (action.work == PipelineWork::forward ? 1 : -1));
}

// --- The table ----------------------------------------------------------------------------------

const std::deque<PipelineKind>& pipeline_kinds() {
  return table();
}

const PipelineKind& register_pipeline(PipelineKind kind) {
  const std::vector<std::string> names = pipeline_names();
  if (std::ranges::find(names, kind.name) != names.end()) {
    throw std::invalid_argument(
        fmt::format("register_pipeline: there is a schedule {} already", kind.name));
  }
  return table().emplace_back(std::move(kind));
}

std::vector<std::string> pipeline_names() {
  std::vector<std::string> names;
  for (const PipelineKind& kind : table()) {
    names.push_back(kind.name);
  }
  return names;
}

const PipelineKind& find_pipeline(std::string_view name) {
  for (const PipelineKind& kind : table()) {
    if (kind.name == name) {
      return kind;
    }
  }
  const std::vector<std::string> known = pipeline_names();
  throw UsageError(
      fmt::format("there is no pipeline schedule \"{}\"; did you mean {}? Choose one of: {}", name,
                  nearest(name, known), fmt::join(known, ", ")));
}

PipelineSchedule emit_pipeline(const PipelineKind& kind, const PipelineShape& shape) {
  if (shape.stages < 1 || shape.micro_batches < 1 || shape.chunks < 1) {
    throw std::invalid_argument(
        fmt::format("emit_pipeline: {} stages, {} micro-batches, {} chunks; each is at least 1",
                    shape.stages, shape.micro_batches, shape.chunks));
  }
  if (const std::string reason = kind.refuses(shape); !reason.empty()) {
    throw UsageError(fmt::format("{} cannot serve {} stages, {} micro-batches and {} chunk{}: {}",
                                 kind.name, shape.stages, shape.micro_batches, shape.chunks,
                                 shape.chunks == 1 ? "" : "s", reason));
  }
  return kind.emit(shape);
}

}  // namespace ringworld
