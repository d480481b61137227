// A pipeline schedule is data: for each stage the order of its work, as a collective algorithm is
// for each rank the order of its messages. The same schedule is proved (pipeline_proof.h), timed
// (pipeline_simulation.h) and shown.
//
// The model is a chain of parts, first to last; a stage (one rank) holds one part, or several, its
// chunks. The activations of a micro-batch travel down the chain and its gradients up. An action
// takes what its neighbour in the chain computed for the same micro-batch and gives what the other
// neighbour needs; which message goes where follows from that (PipelineChain) and is not written
// down a second time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringworld {

enum class PipelineWork : std::uint8_t {
  forward,
  backward,         // both halves together
  backward_input,   // the gradient of the part's input, which the part before it waits for
  backward_weight,  // the gradients of the part's parameters, which nobody waits for
};
std::string_view name_of(PipelineWork work);  // "forward", "backward_input", ...

struct PipelineAction {
  PipelineWork work;
  int micro_batch;
  int chunk = 0;  // of this stage
  bool operator==(const PipelineAction&) const = default;
};

struct PipelineShape {
  int stages = 1;
  int micro_batches = 1;
  int chunks = 1;  // of each stage
  int parts() const { return stages * chunks; }
  bool operator==(const PipelineShape&) const = default;
};

struct PipelineSchedule {
  PipelineShape shape;
  // parts[stage][chunk]: which part of the chain, 0 to shape.parts() - 1.
  std::vector<std::vector<int>> parts;
  std::vector<std::vector<PipelineAction>> actions;  // by stage, in their order
};

// Chunk c of stage s is part c * stages + s, so that the chain goes round all stages once for each
// chunk.
std::vector<std::vector<int>> looped_parts(const PipelineShape& shape);

// "stage 1, forward of micro-batch 3", and ", chunk 1" where stages have several.
std::string describe(const PipelineSchedule& schedule, int stage, const PipelineAction& action);

// Who holds which part.
struct PipelinePlace {
  int stage;
  int chunk;
  bool operator==(const PipelinePlace&) const = default;
};

// Where the input of an action comes from and where its output goes; possibly the same stage, and
// nowhere at the ends of the chain and for backward_weight.
class PipelineChain {
 public:
  // Throws std::invalid_argument unless every part is held once.
  explicit PipelineChain(const PipelineSchedule& schedule);

  int part(int stage, int chunk) const { return parts_[stage][chunk]; }
  std::optional<PipelinePlace> source(int stage, const PipelineAction& action) const;
  std::optional<PipelinePlace> destination(int stage, const PipelineAction& action) const;

 private:
  std::optional<PipelinePlace> place(int part) const;

  std::vector<std::vector<int>> parts_;
  std::vector<PipelinePlace> places_;  // by part
};

// --- The table of schedules ---------------------------------------------------------------------

// Of one micro-batch on a whole stage, in any one unit; a chunk takes its share of it. `backward`
// takes the time of its halves.
struct PipelineTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double communication = 0;  // from the end of an action until another stage has its output

  double work() const { return forward + backward_input + backward_weight; }
};

// Closed forms, with p stages, m micro-batches, v chunks, stage s from 0, and the times TF, TB (of
// backward_input) and TW.
struct PipelineBubble {
  std::string text;
  std::string condition = {};  // for which it holds; empty: always
  // Idle time of the stage that is at work longest, from its first action to its last, when
  // communication takes no time; nothing where there is no closed form.
  std::function<std::optional<double>(const PipelineShape&, const PipelineTimes&)> value;
};
struct PipelineLive {
  std::string text;
  // How many micro-batches of how many chunks the stage holds activations of at its peak, from
  // forward to the end of backward.
  std::function<int(const PipelineShape&, int stage)> value;
};

struct PipelineKind {
  std::string name;
  std::string source;    // paper, section or figure
  int usual_chunks = 1;  // where nobody asks for a number
  // Why it cannot serve this shape; empty when it can.
  std::function<std::string(const PipelineShape&)> refuses;
  std::function<PipelineSchedule(const PipelineShape&)> emit;
  PipelineBubble bubble;  // held against the simulation by tests
  PipelineLive live;      // held against the schedule by the proof
};

// References stay valid when others are added.
const std::deque<PipelineKind>& pipeline_kinds();
// Adds one. Throws std::invalid_argument when there is one of this name already.
const PipelineKind& register_pipeline(PipelineKind kind);
std::vector<std::string> pipeline_names();
// Throws UsageError that names the nearest and lists all.
const PipelineKind& find_pipeline(std::string_view name);

// The schedule for this shape. Throws UsageError with the reason where the kind refuses it, and
// std::invalid_argument for a shape with a number below 1.
PipelineSchedule emit_pipeline(const PipelineKind& kind, const PipelineShape& shape);

}  // namespace ringworld
