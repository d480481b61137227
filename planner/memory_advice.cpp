#include "planner/memory_advice.h"

#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ringworld {
namespace {

constexpr std::int64_t most_gpus = std::int64_t{1} << 20;

struct Change {
  std::string text;
  std::function<void(Layout&)> apply;
};

Change shard(Sharding sharding) {
  return {fmt::format("--sharding {}", name_of(sharding)),
          [sharding](Layout& l) { l.sharding = std::max(l.sharding, sharding); }};
}

Change recompute(Recompute what) {
  return {fmt::format("--recompute {}", name_of(what)),
          [what](Layout& l) { l.recompute = std::max(l.recompute, what); }};
}

Change offload(PlannedOffload what) {
  return {fmt::format("--offload {}", name_of(what)),
          [what](Layout& l) { l.offload = std::max(l.offload, what); }};
}

// As many GPUs, more of them over one layer.
Change split(std::int64_t tensor) {
  return {fmt::format("--tensor {} --sequence-parallel", tensor), [tensor](Layout& l) {
            if (tensor > l.tensor && (l.data * l.tensor) % tensor == 0) {
              l.data = l.data * l.tensor / tensor;
              l.tensor = tensor;
              l.sequence_parallel = true;
            }
          }};
}

Bytes device_of(const Transformer& model, const Layout& layout, const MemoryOptions& options) {
  return plan_memory(model, layout, options).worst().device.total();
}

bool same(const Layout& a, const Layout& b) {
  return describe(a) == describe(b);
}

// As many micro-batches on each of other ranks.
Layout with_data(const Layout& layout, std::int64_t data) {
  Layout other = layout;
  other.data = data;
  other.global_batch = layout.micro_batch * layout.micro_batches() * data;
  return other;
}

}  // namespace

std::vector<MemoryAdvice> what_would_fit(const Transformer& model, const Layout& layout,
                                         const MemoryOptions& options, Bytes budget,
                                         std::size_t most) {
  const Change one_sequence{"--micro-batch 1", [](Layout& l) { l.micro_batch = 1; }};
  const Change frugal = shard(Sharding::zero3);
  const Change full = recompute(Recompute::full);
  const std::vector<std::vector<Change>> candidates = {
      {shard(Sharding::zero1)},
      {shard(Sharding::zero2)},
      {frugal},
      {recompute(Recompute::selective)},
      {full},
      {one_sequence},
      {frugal, full},
      {offload(PlannedOffload::master)},
      {split(8)},
      {frugal, full, one_sequence},
      {shard(Sharding::zero1), full, split(8)},
      {frugal, full, offload(PlannedOffload::master)},
      {frugal, full, one_sequence, offload(PlannedOffload::parameters)},
      {frugal, full, one_sequence, split(8), offload(PlannedOffload::parameters)}};
  std::vector<MemoryAdvice> fits;
  std::optional<MemoryAdvice> nearest;
  for (const std::vector<Change>& changes : candidates) {
    Layout tried = layout;
    std::vector<std::string> texts;
    for (const Change& change : changes) {
      const Layout before = tried;
      change.apply(tried);
      if (!same(before, tried)) {
        texts.push_back(change.text);
      }
    }
    if (texts.size() != changes.size() || !refusal(tried, model, layout.gpus()).empty()) {
      continue;  // a part of it is so already, or cannot be
    }
    const MemoryAdvice advice{fmt::format("{}", fmt::join(texts, " ")), tried,
                              device_of(model, tried, options)};
    if (advice.device <= budget) {
      fits.push_back(advice);
    }
    if (!nearest || advice.device < nearest->device) {
      nearest = advice;
    }
    if (fits.size() == most) {
      break;
    }
  }
  if (fits.empty() && nearest) {
    fits.push_back(*nearest);
  }
  return fits;
}

std::optional<MemoryAdvice> smallest_data_degree(const Transformer& model, const Layout& layout,
                                                 const MemoryOptions& options, Bytes budget) {
  // Memory falls as ranks come, but where one rank gathers nothing: bisection from there on, over
  // degrees that the experts allow.
  const std::int64_t unit = layout.expert > layout.context ? layout.expert / layout.context : 1;
  Layout free = layout;
  free.shard_group = 0;
  const auto tried = [&](std::int64_t units) {
    const Layout l = with_data(free, units * unit);
    return MemoryAdvice{fmt::format("--gpus {}", l.gpus()), l, device_of(model, l, options)};
  };
  const std::int64_t most = std::max<std::int64_t>(
      1, most_gpus / (layout.tensor * layout.pipeline * layout.context * unit));
  if (const MemoryAdvice one = tried(1); one.device <= budget) {
    return one;
  }
  if (tried(most).device > budget) {
    return {};
  }
  std::int64_t low = 1;  // does not fit
  std::int64_t high = most;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (tried(middle).device <= budget ? high : low) = middle;
  }
  return tried(high);
}

Layout most_frugal(const Layout& layout) {
  Layout frugal = layout;
  frugal.sharding = Sharding::zero3;
  frugal.recompute = Recompute::full;
  frugal.sequence_parallel = layout.sequence_parallel || layout.tensor > 1;
  frugal.global_batch = layout.micro_batches() * layout.data;
  frugal.micro_batch = 1;
  return frugal;
}

}  // namespace ringworld
