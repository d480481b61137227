// How long one optimizer step takes: compute, communication by axis, the pipeline's bubble,
// recomputation, the optimizer and offloading; what of it is hidden behind compute and what is not.
//
// The model is physical. Compute is the sum over the kernels of a layer (planner/kernels.h);
// communication the sum over its collectives (planner/network.h); a pipeline step takes its slowest
// stage's micro-batches and the schedule's bubble (parallel/pipeline_schedule.h). What a program
// overlaps is stated in Software, not fitted.
//
// Not modelled: memory traffic and processors that communication takes from compute, variation
// between devices and failures, reading data, evaluation and checkpoints.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "parallel/pipeline_schedule.h"
#include "planner/hardware.h"
#include "planner/kernels.h"
#include "planner/layout.h"
#include "planner/transformer.h"

namespace ringworld {

// How the program is written: facts of an implementation.
struct Software {
  bool flash = true;             // attention fused; else scores are written to memory
  bool dropout = false;          // on attention's scores, its output and the feed-forward part's
  bool fp8 = false;              // matrix products with 8-bit factors
  bool overlap_data = true;      // gradients and gathered weights behind compute
  bool overlap_tensor = true;    // in backward, behind the gradients of weights
  bool overlap_context = false;  // keys and values behind attention
  bool overlap_expert = false;   // tokens to experts and back, behind other micro-batches
  bool overlap_pipeline = true;  // messages between stages behind other micro-batches
  bool cut_messages = true;      // between stages each tensor-parallel rank sends its part alone
  bool paired_messages = true;   // sent to one stage while another's arrives
  // zero3 as DeepSpeed's of 2021 is understood here: every rank fetches weights through its own
  // card, in forward, again for recomputation, and again after it; the first two are waited for,
  // because a layer is larger than what may be kept ahead.
  bool flat_gather = false;
};

// What may overlap, by name.
enum class OverlapAxis : std::uint8_t { data, tensor, context, expert, pipeline };
inline constexpr OverlapAxis all_overlap_axes[] = {OverlapAxis::data, OverlapAxis::tensor,
                                                   OverlapAxis::context, OverlapAxis::expert,
                                                   OverlapAxis::pipeline};
std::string_view name_of(OverlapAxis axis);
bool& overlap_of(Software& software, OverlapAxis axis);
inline bool overlap_of(const Software& software, OverlapAxis axis) {
  Software copy = software;
  return overlap_of(copy, axis);
}

enum class StepPart : std::uint8_t {
  matmul,       // forward and backward
  attention,    // scores, softmax and weighted values
  elementwise,  // norms, activations, residual sums, loss
  kernels,      // beginnings and ends of kernels
  recompute,    // what of these is done once more
  tensor,       // communication of tensor (and sequence) parallel ranks, and so on
  context,
  expert,
  pipeline,
  data,
  bubble,  // a stage without work, and faster stages that wait for the slowest
  optimizer,
  offload,  // transfers to the host or file, and updates on the host's CPUs
};
inline constexpr int step_part_count = 13;
inline constexpr StepPart all_step_parts[] = {
    StepPart::matmul,    StepPart::attention, StepPart::elementwise, StepPart::kernels,
    StepPart::recompute, StepPart::tensor,    StepPart::context,     StepPart::expert,
    StepPart::pipeline,  StepPart::data,      StepPart::bubble,      StepPart::optimizer,
    StepPart::offload};
std::string_view name_of(StepPart part);

struct PartTime {
  double exposed = 0;  // seconds that the step is longer by
  double hidden = 0;   // seconds that pass while the device computes
};

// Of one step, on the stage that is slowest.
struct StepTime {
  std::array<PartTime, step_part_count> parts;
  double seconds = 0;  // the sum of what is exposed
  int slowest_stage = 0;

  PartTime& operator[](StepPart part) { return parts[static_cast<std::size_t>(part)]; }
  const PartTime& operator[](StepPart part) const { return parts[static_cast<std::size_t>(part)]; }
};

// One layer's pass of one micro-batch on one device, by part; seconds.
struct PassTime {
  double matmul = 0;
  double weight_matmul = 0;  // of matmul, in backward: gradients of weights
  double attention = 0;
  double elementwise = 0;
  double kernels = 0;
  double tensor = 0;  // communication
  double context = 0;
  double expert = 0;

  double compute() const { return matmul + attention + elementwise + kernels; }
  PassTime& operator+=(const PassTime& other);
  friend PassTime operator*(double n, const PassTime& pass);
};

struct LayerTime {
  PassTime forward;
  PassTime backward;
  PassTime again;  // recomputation before backward
};

// What one micro-batch costs under a model, a machine and the part of a layout that no more depends
// on than tensor, context and expert degrees, sequence parallelism, recomputation, micro-batch and
// sequence length. A search asks for it once and plans many steps with it.
struct UnitTimes {
  LayerTime dense;
  LayerTime experts;  // a layer with experts, where the model has any
  PassTime head_forward, head_backward;
  PassTime embedding;  // both passes
};
UnitTimes unit_times(const Transformer& model, const Layout& layout, const Machine& machine,
                     const Software& software);

// Layers of a stage, over all its chunks.
struct StageLayers {
  double dense = 0;
  double experts = 0;  // with experts
  double all() const { return dense + experts; }
  bool operator==(const StageLayers&) const = default;
};
StageLayers layers_of_stage(const Transformer& model, const Layout& layout, std::int64_t stage);

// Parameters that one device holds, before what data-parallel ranks share out; of the stage that
// holds most. Experts are counted apart: they are reduced over fewer ranks.
struct HeldParameters {
  double dense = 0;
  double experts = 0;
};
HeldParameters held_parameters(const Transformer& model, const Layout& layout);

// The layout must not be refused (planner/layout.h).
StepTime plan_step(const Transformer& model, const Layout& layout, const Machine& machine,
                   const Software& software);
StepTime plan_step(const Transformer& model, const Layout& layout, const Machine& machine,
                   const Software& software, const UnitTimes& units, const HeldParameters& held,
                   const PipelineKind& schedule);

// What a step's time means.
struct Throughput {
  double tokens_per_second = 0;  // of all GPUs
  double model_flops = 0;        // per second and GPU, causal attention
  double model_flops_full_attention = 0;
  double hardware_flops = 0;  // the same with recomputation
  double peak = 0;
  double mfu() const { return model_flops / peak; }
  double hfu() const { return hardware_flops / peak; }
};
Throughput throughput(const Transformer& model, const Layout& layout, const Machine& machine,
                      const Software& software, double seconds);

}  // namespace ringworld
