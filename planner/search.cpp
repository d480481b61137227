#include "planner/search.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "parallel/pipeline_schedule.h"
#include "planner/flops.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr std::int64_t most_chunks = 8;
constexpr std::int64_t largest_micro_batch = 32;
// Of a sequence on one of its context-parallel ranks.
constexpr std::int64_t least_tokens = 1024;

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> result;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d) {
    if (n % d == 0) {
      result.push_back(d);
    }
  }
  return result;
}

// What may be offloaded, and where to.
struct OffloadChoice {
  PlannedOffload what;
  bool file;
};
constexpr OffloadChoice offload_choices[] = {{PlannedOffload::none, false},
                                             {PlannedOffload::master, false},
                                             {PlannedOffload::master, true},
                                             {PlannedOffload::parameters, false},
                                             {PlannedOffload::parameters, true}};

// A way to work through a pipeline.
struct ScheduleChoice {
  const PipelineKind* kind;
  std::int64_t chunks;
};

class Search {
 public:
  Search(const Transformer& model, const Machine& machine, const SearchQuestion& question)
      : model_(model), machine_(machine), q_(question) {
    node_ = static_cast<std::int64_t>(machine.gpus_per_node.value);
    flops_ = token_flops(model, question.sequence_length).model(true);
    peak_ = question.software.fp8 ? machine.fp8.value : machine.peak(question.precision);
    const PipelineKind& plain = find_pipeline("1f1b");
    alone_ = {{&plain, 1}};
    schedules_ = {{&plain, 1}, {&find_pipeline("zb-h1"), 1}, {&find_pipeline("zb-h2"), 1}};
    for (std::int64_t chunks = 2; chunks <= most_chunks; ++chunks) {
      schedules_.push_back({&find_pipeline("interleaved-1f1b"), chunks});
    }
  }

  SearchResult run() {
    for (const std::int64_t tensor : divisors(q_.gpus, node_)) {
      for (const std::int64_t context : divisors(q_.gpus / tensor, most_context())) {
        Layout layout;
        layout.tensor = tensor;
        layout.context = context;
        layout.global_batch = q_.global_batch;
        layout.sequence_length = q_.sequence_length;
        layout.precision = q_.precision;
        layout.gradient_precision = q_.gradient_precision;
        if (const std::optional<Rejection> reason = refuse_split(layout)) {
          reject(*reason, layout);
          continue;
        }
        for (const std::int64_t expert : expert_degrees(layout)) {
          layout.expert = expert;
          for (const bool sequence_parallel : {false, true}) {
            layout.sequence_parallel = sequence_parallel;
            if (!sequence_parallel || tensor > 1) {
              weigh_micro_batches(layout);
            }
          }
        }
      }
    }
    std::ranges::sort(result_.best, faster);
    return std::move(result_);
  }

 private:
  static bool faster(const Found& a, const Found& b) { return a.time.seconds < b.time.seconds; }

  void reject(Rejection reason, const Layout& layout) {
    ++result_.weighed;
    Rejected& rejected = result_[reason];
    if (rejected.count++ == 0) {
      rejected.example = describe(layout);
    }
  }

  std::int64_t most_context() const {
    return std::max<std::int64_t>(1, q_.sequence_length / least_tokens);
  }

  std::optional<Rejection> refuse_split(const Layout& l) const {
    if (model_.heads % l.tensor != 0 || model_.hidden % l.tensor != 0 ||
        (model_.experts && model_.experts->hidden % l.tensor != 0) ||
        (!model_.latent && model_.kv_heads % l.tensor != 0 && l.tensor % model_.kv_heads != 0)) {
      return Rejection::heads;
    }
    if (q_.sequence_length % (l.context * l.tensor) != 0) {
      return Rejection::sequence;
    }
    return std::nullopt;
  }

  std::vector<std::int64_t> expert_degrees(const Layout& l) const {
    return model_.experts ? divisors(model_.experts->count, q_.gpus / l.tensor)
                          : std::vector<std::int64_t>{1};
  }

  // Everything below has the same times of a layer, but for recomputation.
  void weigh_micro_batches(Layout layout) {
    for (std::int64_t b = 1; b <= largest_micro_batch; b *= 2) {
      layout.micro_batch = b;
      for (const Recompute recompute : all_recomputes) {
        layout.recompute = recompute;
        units_[static_cast<std::size_t>(recompute)] =
            unit_times(model_, layout, machine_, q_.software);
      }
      const std::int64_t rest = q_.gpus / layout.tensor / layout.context;
      for (const std::int64_t pipeline : divisors(rest, rest)) {
        layout.pipeline = pipeline;
        layout.data = rest / pipeline;
        layout.chunks = 1;
        if (pipeline > model_.layers) {
          reject(Rejection::layers, layout);
        } else if (q_.global_batch % (layout.data * b) != 0) {
          reject(Rejection::batch, layout);
        } else if ((layout.data * layout.context) % layout.expert != 0) {
          reject(Rejection::experts, layout);
        } else {
          weigh_schedules(layout);
        }
      }
    }
  }

  void weigh_schedules(Layout layout) {
    for (const ScheduleChoice& choice : layout.pipeline == 1 ? alone_ : schedules_) {
      layout.chunks = choice.chunks;
      if (layout.pipeline * choice.chunks > model_.layers) {
        reject(Rejection::layers, layout);
        continue;
      }
      layout.schedule = choice.kind->name;
      const PipelineShape shape{.stages = static_cast<int>(layout.pipeline),
                                .micro_batches = static_cast<int>(layout.micro_batches()),
                                .chunks = static_cast<int>(choice.chunks)};
      if (layout.pipeline > 1 && !choice.kind->refuses(shape).empty()) {
        reject(Rejection::schedule, layout);
        continue;
      }
      weigh_states(layout, *choice.kind);
    }
  }

  void weigh_states(Layout layout, const PipelineKind& kind) {
    const HeldParameters held = held_parameters(model_, layout);
    for (const Sharding sharding : all_shardings) {
      layout.sharding = sharding;
      if (sharding != Sharding::none && layout.sharding_ranks() == 1) {
        break;  // there is nobody to share with
      }
      for (const OffloadChoice& choice : offload_choices) {
        if ((choice.what == PlannedOffload::parameters && sharding != Sharding::zero3) ||
            (choice.what != PlannedOffload::none && !q_.offload)) {
          continue;
        }
        layout.offload = choice.what;
        layout.offload_to_file = choice.file;
        // What fits as it is would only be slower with recomputation, and with offloading.
        bool first = true;
        bool fitting = false;
        for (const Recompute recompute : all_recomputes) {
          layout.recompute = recompute;
          fitting = weigh(layout, kind, held);
          if (fitting) {
            break;
          }
          first = false;
        }
        if (fitting && first) {
          break;
        }
      }
    }
  }

  // Does it fit?
  bool weigh(const Layout& layout, const PipelineKind& kind, const HeldParameters& held) {
    const MemoryPlan memory = plan_memory(model_, layout, q_.memory);
    const StageMemory& worst = memory.worst();
    if (!fits(Rejection::memory, layout, worst.device.total(), machine_.memory.value, 1)) {
      return false;
    }
    const auto on_node = static_cast<double>(std::min(node_, layout.gpus()));
    if (layout.offload != PlannedOffload::none &&
        (!fits(Rejection::host_memory, layout, worst.host.total(), machine_.host_memory.value,
               on_node) ||
         !fits(Rejection::file, layout, worst.file.total(), machine_.nvme.value, on_node))) {
      return false;
    }
    ++result_.weighed;
    ++result_.fitting;
    const StepTime time = plan_step(model_, layout, machine_, q_.software,
                                    units_[static_cast<std::size_t>(layout.recompute)], held, kind);
    if (result_.best.size() == q_.keep && time.seconds >= result_.best.front().time.seconds) {
      return true;
    }
    keep(layout, time, worst.device.total());
    return true;
  }

  // The slowest of those kept is in front.
  void keep(const Layout& layout, const StepTime& time, Bytes memory) {
    const double tokens = static_cast<double>(q_.global_batch) *
                          static_cast<double>(q_.sequence_length) / time.seconds;
    if (result_.best.size() == q_.keep) {
      std::ranges::pop_heap(result_.best, faster);
      result_.best.pop_back();
    }
    result_.best.push_back({.layout = layout,
                            .time = time,
                            .memory = memory,
                            .tokens_per_second = tokens,
                            .mfu = tokens / static_cast<double>(q_.gpus) * flops_ / peak_});
    std::ranges::push_heap(result_.best, faster);
  }

  bool fits(Rejection reason, const Layout& layout, Bytes needed, double there, double times) {
    const double bytes = times * static_cast<double>(needed.value);
    if (bytes <= there) {
      return true;
    }
    ++result_.weighed;
    Rejected& rejected = result_[reason];
    double& least = least_[static_cast<std::size_t>(reason)];
    if (rejected.count++ == 0 || bytes < least) {
      least = bytes;
      rejected.example = fmt::format("nearest: {:.1f} of {:.1f} GB with {}", bytes / 1e9,
                                     there / 1e9, describe(layout));
    }
    return false;
  }

  const Transformer& model_;
  const Machine& machine_;
  const SearchQuestion& q_;
  std::int64_t node_ = 1;
  double flops_ = 0;
  double peak_ = 0;
  std::vector<ScheduleChoice> alone_;
  std::vector<ScheduleChoice> schedules_;
  std::array<UnitTimes, 3> units_;
  std::array<double, rejection_count> least_ = {};
  SearchResult result_;
};

}  // namespace

std::string_view name_of(SearchOrder order) {
  return order == SearchOrder::time ? "time" : "cost";
}

std::string_view describe(Rejection rejection) {
  constexpr std::string_view texts[rejection_count] = {
      "tensor ranks do not divide heads or features",
      "more pipeline parts than layers",
      "expert ranks divide neither experts nor ranks",
      "tensor and context ranks do not divide the sequence",
      "data ranks and micro-batch do not divide the batch",
      "the schedule cannot serve so many micro-batches",
      "more than the GPU's memory",
      "more than the node's memory",
      "more than the node's drives"};
  return texts[static_cast<std::size_t>(rejection)];
}

SearchResult search_layouts(const Transformer& model, const Machine& machine,
                            const SearchQuestion& question) {
  return Search(model, machine, question).run();
}

std::vector<std::int64_t> parse_gpu_range(std::string_view text, std::string_view option) {
  constexpr std::int64_t most = 1'000'000;
  const auto number = [&](std::string_view part) {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (part.empty() || error != std::errc() || end != part.data() + part.size() || n < 1 ||
        n > most) {
      throw UsageError(fmt::format(
          "{}: '{}': is no number of GPUs from 1 to {}; ask for one as 16384, or for a range as "
          "8..1024",
          option, text, most));
    }
    return n;
  };
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    return {number(text)};
  }
  const std::int64_t first = number(text.substr(0, dots));
  const std::int64_t last = number(text.substr(dots + 2));
  if (first > last) {
    throw UsageError(fmt::format("{}: '{}': ends below its beginning; ask for {}..{}", option, text,
                                 last, first));
  }
  std::vector<std::int64_t> range;
  for (std::int64_t n = first; n < last; n *= 2) {
    range.push_back(n);
  }
  range.push_back(last);
  return range;
}

}  // namespace ringworld
