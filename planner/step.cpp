#include "planner/step.h"

#include <algorithm>
#include <vector>

#include "planner/flops.h"
#include "planner/numbers.h"
#include "runtime/dtype.h"

namespace ringworld {
namespace {

double bytes_of(DType dtype) {
  return as_double(size_of(dtype).value);
}

// When communication passes while the device computes.
struct Overlap {
  bool possible = true;
  double contention = 0;  // seconds that compute takes longer for each hidden second
};

// Communication that may pass while the device computes for `window` seconds; of its `pieces` the
// first, or the last, has nothing to hide behind.
PartTime hide(double seconds, double window, double pieces, const Overlap& overlap) {
  if (!overlap.possible) {
    return {seconds, 0};
  }
  const double alone = std::max(seconds - window, seconds / std::max(pieces, 1.0));
  const double hidden = seconds - alone;
  return {alone + overlap.contention * hidden, hidden};
}

PartTime& operator+=(PartTime& sum, const PartTime& more) {
  sum.exposed += more.exposed;
  sum.hidden += more.hidden;
  return sum;
}

// What one micro-batch costs on one stage.
struct StageTime {
  PassTime forward;
  PassTime backward;
  PassTime again;
  double layers = 0;
  PartTime tensor;
  PartTime context;
  PartTime expert;

  double compute_backward() const { return backward.compute() + again.compute(); }
  double exposed() const {
    return forward.compute() + compute_backward() + tensor.exposed + context.exposed +
           expert.exposed;
  }
};

StageTime stage_time(const Layout& l, const Software& software, double contention,
                     const UnitTimes& units, std::int64_t stage, const StageLayers& layers) {
  StageTime time;
  time.layers = layers.dense + layers.experts;
  for (const auto& [count, layer] : {std::pair<double, const LayerTime&>{layers.dense, units.dense},
                                     {layers.experts, units.experts}}) {
    time.forward += count * layer.forward;
    time.backward += count * layer.backward;
    time.again += count * layer.again;
  }
  if (stage == 0) {
    time.forward += units.embedding;
  }
  if (stage == l.pipeline - 1) {
    time.forward += units.head_forward;
    time.backward += units.head_backward;
  }
  // What backward sends for inputs' gradients passes while it computes those of weights. With
  // sequence parallelism a third of it, the gathering of outputs' gradients, comes before both.
  const double overlapping = time.backward.tensor * (l.sequence_parallel ? 2.0 / 3 : 1);
  const double hidden =
      software.overlap_tensor ? std::min(overlapping, time.backward.weight_matmul) : 0;
  time.tensor = {
      time.forward.tensor + time.backward.tensor + time.again.tensor - (1 - contention) * hidden,
      hidden};
  time.context = hide(time.forward.context + time.backward.context + time.again.context,
                      time.forward.attention + time.backward.attention, time.layers,
                      {software.overlap_context, contention});
  time.expert = hide(time.forward.expert + time.backward.expert + time.again.expert,
                     time.forward.compute() + time.backward.compute(), time.layers,
                     {software.overlap_expert, contention});
  return time;
}

void add_compute(StepTime& step, const StageTime& stage, double times) {
  for (const PassTime* pass : {&stage.forward, &stage.backward}) {
    step[StepPart::matmul].exposed += times * pass->matmul;
    step[StepPart::attention].exposed += times * pass->attention;
    step[StepPart::elementwise].exposed += times * pass->elementwise;
    step[StepPart::kernels].exposed += times * pass->kernels;
  }
  step[StepPart::recompute].exposed += times * stage.again.compute();
  step[StepPart::tensor] = {times * stage.tensor.exposed, times * stage.tensor.hidden};
  step[StepPart::context] = {times * stage.context.exposed, times * stage.context.hidden};
  step[StepPart::expert] = {times * stage.expert.exposed, times * stage.expert.hidden};
}

// Messages between stages, and the time in which the slowest stage has nothing to do.
void add_pipeline(StepTime& step, const Transformer& model, const Layout& l, const Network& network,
                  const Software& software, const PipelineKind& schedule, const StageTime& slowest,
                  const PassTime& others_forward, const PassTime& others_backward, double others,
                  double contention) {
  if (l.pipeline == 1) {
    return;
  }
  const bool cut = software.cut_messages || l.sequence_parallel;
  const double bytes = as_double(l.micro_batch) * as_double(l.sequence_length) /
                       as_double(l.context) * as_double(model.width) * bytes_of(l.precision) /
                       (cut ? as_double(l.tensor) : 1);
  const RankGroup group = group_of_axis(network, l.pipeline, l.tensor * l.context * l.data);
  const double message = point_to_point_time(network, group.per_node == group.ranks, bytes).seconds;
  const double micro_batches = as_double(l.micro_batches());
  const double each = software.paired_messages ? 2 : 4;  // of one micro-batch and chunk
  const double messages = each * as_double(l.chunks) * micro_batches * message;
  // While the pipeline fills and drains, nothing hides them.
  const double ramp = 2 * as_double(l.pipeline - 1) * message;
  step[StepPart::pipeline] =
      hide(messages, micro_batches * slowest.exposed(), messages / std::max(ramp, 1e-30),
           {software.overlap_pipeline, contention});

  const PipelineShape shape{.stages = static_cast<int>(l.pipeline),
                            .micro_batches = static_cast<int>(l.micro_batches()),
                            .chunks = static_cast<int>(l.chunks)};
  // The other stages' mean: the slowest is never idle for its own sake.
  const double share = others / (others_forward.compute() + others_backward.compute());
  const double weights = others_backward.weight_matmul * share;
  const PipelineTimes times{.forward = others_forward.compute() * share,
                            .backward_input = others_backward.compute() * share - weights,
                            .backward_weight = weights};
  const std::optional<double> closed = schedule.bubble.value(shape, times);
  // Where a schedule has no closed form for these times, it is at most 1F1B's.
  step[StepPart::bubble].exposed =
      closed ? *closed : as_double(l.pipeline - 1) * times.work() / as_double(l.chunks);
}

// Weights and gradients among data-parallel ranks.
void add_data(StepTime& step, const Layout& l, const Network& network, const Software& software,
              const HeldParameters& held, const StageTime& stage, double contention) {
  const Overlap overlap{software.overlap_data, contention};
  const std::int64_t ranks = l.data * l.context;
  if (ranks == 1) {
    return;
  }
  const double gradient = bytes_of(l.gradient_precision);
  const double weight = bytes_of(l.precision);
  const double micro_batches = as_double(l.micro_batches());
  const double forward = stage.forward.compute();
  const double backward = stage.compute_backward();
  PartTime& data = step[StepPart::data];
  // Dense parameters are everybody's; an expert is held by one of `expert` ranks.
  const std::pair<double, std::int64_t> kinds[] = {{held.dense, 1}, {held.experts, l.expert}};
  const double all_held = held.dense + held.experts;
  for (const auto& [count, apart] : kinds) {
    const std::int64_t sharers =
        std::max<std::int64_t>(1, l.sharding == Sharding::none ? 1 : l.sharding_ranks() / apart);
    const std::int64_t copies = std::max<std::int64_t>(1, ranks / apart / sharers);
    const RankGroup shard = group_of_axis(network, sharers, l.tensor * apart);
    const RankGroup replicas = group_of_axis(network, copies, l.tensor * apart * sharers);
    const double window = count / std::max(all_held, 1.0);  // its share of the compute
    if (copies > 1) {                                       // once a step, before the update
      data +=
          hide(all_reduce_time(network, replicas, count * gradient / as_double(sharers)).seconds,
               window * backward, stage.layers, overlap);
    }
    if (sharers == 1) {
      continue;
    }
    if (l.sharding == Sharding::zero3 && software.flat_gather) {
      const double fetched = flat_all_gather_time(network, shard, count * weight).seconds;
      data += {micro_batches * 2 * fetched, 0};
      data += hide(micro_batches * 2 * fetched, window * micro_batches * (forward + backward),
                   stage.layers, overlap);
      continue;
    }
    const double gathered = all_gather_time(network, shard, count * weight).seconds;
    const double scattered = reduce_scatter_time(network, shard, count * gradient).seconds;
    const double reductions =
        l.sharding == Sharding::zero1 ? 1 : micro_batches;  // zero1 adds up before it reduces
    const double gathers = l.sharding == Sharding::zero3 ? micro_batches : 0;
    data += hide(std::max(gathers, 1.0) * gathered, window * std::max(gathers, 1.0) * forward,
                 stage.layers * micro_batches, overlap);
    data += hide(reductions * scattered + gathers * gathered, window * reductions * backward,
                 stage.layers * reductions, overlap);
  }
}

// The update, on the device or on the host, and what moves for it.
void add_update(StepTime& step, const Layout& l, const Machine& machine, const Software& software,
                const HeldParameters& held, const StageTime& stage) {
  const Overlap overlap{software.overlap_data, machine.contention.value};
  const double weight = bytes_of(l.precision);
  const double gradient = bytes_of(l.gradient_precision);
  const bool shards = l.sharding != Sharding::none;
  const double updated =
      held.dense / (shards ? as_double(l.sharding_ranks()) : 1) +
      held.experts / (shards ? std::max(1.0, as_double(l.sharding_ranks() / l.expert)) : 1);
  const double memory = machine.memory_bandwidth.value * machine.memory_share.value;
  // The norm reads the gradients, zeroing writes them.
  step[StepPart::optimizer].exposed = updated * 2 * gradient / memory;
  if (l.offload == PlannedOffload::none) {
    // AdamW reads and writes two moments and the 32-bit weights, reads the gradient, and writes
    // weights of another format.
    const double states = 2 * 3 * 4 + gradient + (weight == 4 ? 0 : weight);
    step[StepPart::optimizer].exposed += updated * states / memory;
    return;
  }
  const double on_node = updated * std::min(machine.gpus_per_node.value, as_double(l.gpus()));
  PartTime& offload = step[StepPart::offload];
  offload += hide(updated * gradient / machine.host_link.value, stage.compute_backward(),
                  stage.layers, overlap);
  offload.exposed += updated * weight / machine.host_link.value + on_node / machine.adam_rate.value;
  if (l.offload_to_file) {
    offload.exposed += on_node * 12 * (1 / machine.nvme_read.value + 1 / machine.nvme_write.value);
  }
  if (l.offload == PlannedOffload::parameters) {  // a rank's part is fetched before every gathering
    const double times = 2 * as_double(l.micro_batches());
    offload +=
        hide(times * updated * weight / machine.host_link.value,
             as_double(l.micro_batches()) * (stage.forward.compute() + stage.compute_backward()),
             stage.layers, overlap);
  }
}

}  // namespace

std::string_view name_of(OverlapAxis axis) {
  constexpr std::string_view names[] = {"data", "tensor", "context", "expert", "pipeline"};
  return names[static_cast<std::size_t>(axis)];
}

bool& overlap_of(Software& software, OverlapAxis axis) {
  bool* const flags[] = {&software.overlap_data, &software.overlap_tensor,
                         &software.overlap_context, &software.overlap_expert,
                         &software.overlap_pipeline};
  return *flags[static_cast<std::size_t>(axis)];
}

std::string_view name_of(StepPart part) {
  constexpr std::string_view names[] = {
      "matmul", "attention", "elementwise", "kernels", "recompute", "tensor", "context",
      "expert", "pipeline",  "data",        "bubble",  "optimizer", "offload"};
  return names[static_cast<std::size_t>(part)];
}

StageLayers layers_of_stage(const Transformer& model, const Layout& l, std::int64_t stage) {
  StageLayers layers;
  const std::int64_t dense_layers = !model.experts ? model.layers : model.experts->dense_layers;
  const auto add = [&](const LayerRange& range) {
    const std::int64_t dense =
        std::clamp<std::int64_t>(dense_layers - range.first, 0, range.count());
    layers.dense += as_double(dense);
    layers.experts += as_double(range.count() - dense);
  };
  if (!l.stage_layers.empty()) {
    std::int64_t first = 0;
    for (std::int64_t before = 0; before < stage; ++before) {
      first += l.stage_layers[static_cast<std::size_t>(before)];
    }
    add({first, first + l.stage_layers[static_cast<std::size_t>(stage)]});
    return layers;
  }
  for (std::int64_t chunk = 0; chunk < l.chunks; ++chunk) {
    add(layers_of_part(model.layers, l.pipeline * l.chunks, chunk * l.pipeline + stage));
  }
  return layers;
}

HeldParameters held_parameters(const Transformer& model, const Layout& l) {
  const LayerParameters dense = layer_parameters(model, 0);
  const LayerParameters last = layer_parameters(model, model.layers - 1);
  const ParameterCount count = count_parameters(model);
  const double t = as_double(l.tensor);
  const auto of_layer = [&](const LayerParameters& p) {
    return as_double(p.attention_split + p.mlp_split + p.shared_experts) / t +
           as_double(p.attention_whole + p.mlp_whole + p.router + p.norms);
  };
  HeldParameters most;
  for (std::int64_t stage = 0; stage < l.pipeline; ++stage) {
    const StageLayers layers = layers_of_stage(model, l, stage);
    HeldParameters held;
    held.dense = layers.dense * of_layer(dense) + layers.experts * of_layer(last);
    held.experts = layers.experts * as_double(last.experts) / t / as_double(l.expert);
    if (stage == 0) {
      held.dense += as_double(count.embedding) / t + as_double(count.positions);
    }
    if (stage == l.pipeline - 1) {
      const std::int64_t head = model.tied_head && l.pipeline > 1 ? count.embedding : count.head;
      held.dense += as_double(head) / t;
    }
    if (held.dense + held.experts > most.dense + most.experts) {
      most = held;
    }
  }
  return most;
}

StepTime plan_step(const Transformer& model, const Layout& layout, const Machine& machine,
                   const Software& software) {
  return plan_step(model, layout, machine, software, unit_times(model, layout, machine, software),
                   held_parameters(model, layout), find_pipeline(layout.schedule));
}

StepTime plan_step(const Transformer& model, const Layout& layout, const Machine& machine,
                   const Software& software, const UnitTimes& units, const HeldParameters& held,
                   const PipelineKind& schedule) {
  const Network network = machine.network();
  const double contention = machine.contention.value;
  StepTime step;
  StageTime slowest;
  double all_exposed = 0;
  PassTime others_forward;
  PassTime others_backward;
  StageTime time;
  StageLayers last_layers;
  for (std::int64_t stage = 0; stage < layout.pipeline; ++stage) {
    const StageLayers layers = layers_of_stage(model, layout, stage);
    // A stage in the middle is often like the one before it.
    if (stage < 2 || stage == layout.pipeline - 1 || layers != last_layers) {
      time = stage_time(layout, software, contention, units, stage, layers);
      last_layers = layers;
    }
    all_exposed += time.exposed();
    others_forward += time.forward;
    others_backward += time.backward;
    others_backward += time.again;
    if (stage == 0 || time.exposed() > slowest.exposed()) {
      slowest = time;
      step.slowest_stage = static_cast<int>(stage);
    }
  }
  add_compute(step, slowest, as_double(layout.micro_batches()));
  const double others =
      (all_exposed - slowest.exposed()) / std::max(1.0, as_double(layout.pipeline - 1));
  add_pipeline(step, model, layout, network, software, schedule, slowest, others_forward,
               others_backward, others, contention);
  add_data(step, layout, network, software, held, slowest, contention);
  add_update(step, layout, machine, software, held, slowest);
  for (const PartTime& part : step.parts) {
    step.seconds += part.exposed;
  }
  return step;
}

Throughput throughput(const Transformer& model, const Layout& layout, const Machine& machine,
                      const Software& software, double seconds) {
  const double tokens =
      as_double(layout.data * layout.micro_batch * layout.micro_batches() * layout.sequence_length);
  const double each = tokens / seconds / as_double(layout.gpus());
  const TokenFlops flops = token_flops(model, layout.sequence_length);
  return {.tokens_per_second = tokens / seconds,
          .model_flops = each * flops.model(true),
          .model_flops_full_attention = each * flops.model(false),
          .hardware_flops = each * hardware_flops_per_token(model, layout.sequence_length,
                                                            layout.recompute, software.flash),
          .peak = software.fp8 ? machine.fp8.value : machine.peak(layout.precision)};
}

}  // namespace ringworld
