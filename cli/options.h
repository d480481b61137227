// The command line of ringworld: what each subcommand can be told.
//
// To add a subcommand: a struct with its options and their defaults here, then a `declare`, a
// `check` and one row of the table in options.cpp.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/console.h"
#include "cli/parallel_options.h"
#include "collectives/schedule.h"
#include "models/model.h"
#include "parallel/pipeline_schedule.h"
#include "parallel/strategy.h"
#include "planner/layout.h"
#include "planner/memory.h"
#include "planner/model_input.h"
#include "planner/search.h"
#include "planner/step.h"
#include "runtime/backend.h"
#include "runtime/bytes.h"
#include "runtime/dtype.h"
#include "training/data.h"
#include "training/learning_rate.h"
#include "training/loss_scaler.h"
#include "training/optimizer.h"
#include "training/parity.h"
#include "training/tensor_dump.h"
#include "training/training_state.h"

namespace ringworld {

// How messages travel. automatic: through shared memory where that can be, else through MPI.
enum class TransportChoice : std::uint8_t { automatic, shared, mpi };
inline constexpr TransportChoice all_transport_choices[] = {
    TransportChoice::automatic, TransportChoice::shared, TransportChoice::mpi};
std::string_view name_of(TransportChoice choice);  // "auto", "shared", "mpi"

// What one rank may use.
struct ResourceOptions {
  int threads = 0;         // 0: the CPUs allowed on this machine divided by its ranks
  Bytes device_memory{0};  // 0: as `device` has
  std::string device;      // in the hardware table; empty: no limit
  TransportChoice transport = TransportChoice::automatic;
  int nodes = 1;                   // as how many machines the ranks are treated; divides the world
  std::string algorithm = "auto";  // of every operation that has one of this name
  std::string tuning;              // path of a selection; empty: the built-in table
  bool explain = false;
  bool reproducible = false;
  double timeout = 60;  // seconds without progress after which a missing rank is reported

  Bytes budget() const;  // 0: no limit
  std::chrono::milliseconds timeout_milliseconds() const {
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(timeout * 1000)));
  }
};

// Which activations backward computes again: of every `checkpoint` units all but the first one's
// input (MicroBatchOptions), or attention's alone (ModelOptions::recompute_attention).
struct Recomputation {
  std::int64_t checkpoint = 0;
  bool attention = false;
};
std::string to_string(const Recomputation& recomputation);  // "none", "selective", "2"

struct DryRunOptions {
  bool asked = false;
  int world = 0;  // 0: as many ranks as were started
  int rank = 0;
  std::string json;  // path; "-": standard output, instead of the table; empty: none
};

struct TrainOptions : TrainingSetup {
  DataOptions data;                      // the sequence length is in it
  std::int64_t validation_interval = 0;  // steps; 0: never measured
  std::int64_t validation_batches = 4;   // global batches that a measurement reads; 0: all
  Recomputation recomputation;
  std::int64_t steps = 100;
  std::int64_t global_batch = 32;                // sequences per optimizer step
  std::int64_t micro_batch = 4;                  // sequences per rank and forward
  std::optional<LossScaling> loss_scaling_mode;  // none: by the precision
  LossScalerOptions loss_scaling;                // the mode is set when all is known
  LearningRateOptions learning_rate;             // its `steps` are the run's
  double clip_norm = 1;                          // 0: no clipping
  std::string metrics;                           // path; empty: none
  std::string memory_timeline;                   // path; empty: none
  DumpOptions dump;                              // step 0: none
  ProgressStyle progress = ProgressStyle::automatic;
  DryRunOptions dry_run;
  ResourceOptions resources;
  std::string settings;  // all of the above that was given, see OptionSet::settings
};

// Every combination of the lists is verified, as far as it is supported.
struct VerifyOptions {
  ModelOptions model;
  LayoutLists layouts;
  std::vector<std::string> data;  // paths; none: synthetic tokens
  std::int64_t sequence_length = 32;
  std::vector<std::string> strategies;
  StrategyOptions strategy;  // its name aside
  std::vector<Recomputation> recomputations;
  std::vector<Offload> offloads;
  std::vector<OffloadTo> offload_targets;
  OffloadSettings offload;  // what and where aside
  std::vector<DType> precisions;
  std::int64_t steps = 3;
  std::int64_t micro_batch = 2;
  // Accumulation steps, one verification each. Empty exactly when global_batch is given, which then
  // decides.
  std::vector<std::int64_t> accumulation;
  std::int64_t global_batch = 0;
  // SGD, since AdamW divides a gradient by its own size: where a gradient is zero in theory (the
  // biases of the keys in attention) it makes a whole update out of rounding noise, which differs
  // between any two orders of adding.
  OptimizerOptions optimizer{.kind = OptimizerKind::sgd};
  double learning_rate = 1e-3;  // constant
  double clip_norm = 1;         // 0: no clipping
  std::uint64_t seed = 1;
  std::optional<Plant> plant;
  std::string json;  // path; empty: none
  ResourceOptions resources;
  std::string settings;  // all of the above that was given, see OptionSet::settings
};

struct ShowOptions {
  Operation operation = Operation::all_reduce;
  std::string algorithm;  // empty: the operation's first
  int ranks = 4;
  int root = 0;
  std::string json;      // path; "-": standard output, instead of the table; empty: none
  std::string settings;  // all of the above that was given, see OptionSet::settings
};

// show pipeline.
struct ShowPipelineOptions {
  std::string schedule = "1f1b";
  PipelineShape shape{.stages = 4, .micro_batches = 8, .chunks = 0};  // chunks 0: as is usual
  PipelineTimes times;
  std::string svg;       // path; empty: none
  std::string trace;     // path; empty: none
  std::string json;      // as for show
  std::string settings;  // as for show
};

// show shards. Nothing is offloaded.
struct ShowShardsOptions : TrainingSetup {
  int world = 0;         // 0: the mesh's, else as usual
  std::string tensor;    // its name; empty: all
  std::string html;      // path; empty: none
  std::string json;      // as for show
  std::string settings;  // as for show
};

struct CallOptions {
  Operation operation = Operation::all_reduce;
  std::string algorithm;  // empty: the operation's first
  std::string values;     // JSON: for each rank its numbers
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::string json;  // as for show
  ResourceOptions resources;
  std::string settings;  // as for show
};

struct BenchOptions {
  Operation operation = Operation::all_reduce;
  std::vector<std::string> algorithms;  // empty: all that can serve
  std::vector<Bytes> sizes;             // of the whole buffer, as asked
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::string in_place;         // "no", "yes" or "both"
  std::int64_t iterations = 0;  // 0: as many as fill some time
  std::int64_t warmup = 1;      // calls
  bool inject_bitflip = false;
  std::string json;   // as for show
  std::string csv;    // path; "-": standard output; empty: none
  std::string chart;  // path; empty: none
  std::string tune;   // path; empty: none
  ResourceOptions resources;
  std::string settings;  // as for show
};

struct CompareOptions {
  std::vector<std::string> paths;  // of two dumps
  std::optional<double> bound;     // none: by the dumps' precision
  std::string json;                // as for show
  std::string settings;            // as for show
};

struct CapabilitiesOptions {
  std::string json;      // as for show
  std::string settings;  // as for show
};

struct DoctorOptions {
  std::string json;      // as for show
  double timeout = 60;   // seconds, as in ResourceOptions
  std::string settings;  // as for show
};

// What a plan is of, as far as it was said; plan_setup.h fills in the rest and says from where.
struct PlannedTraining {
  ModelQuestion model;
  std::int64_t gpus = 0;                     // 0: as many as the degrees say
  Layout layout{.data = 0, .schedule = ""};  // 0 and empty: not given
  std::optional<DType> precision;
  std::optional<DType> gradient_precision;
  MemoryOptions memory;
  std::string gpu;       // in the machine table; empty: none
  std::string hardware;  // path of other machines; empty: the built-in table alone
  Bytes gpu_memory{0};   // 0: as `gpu` has
};

// Whose memory is planned: a GPU's, as publications count it, or our own runtime's.
enum class Accounting : std::uint8_t { gpu, ringworld };
inline constexpr Accounting all_accountings[] = {Accounting::gpu, Accounting::ringworld};
std::string_view name_of(Accounting accounting);

// Whose arithmetic: ours, or another calculator's.
enum class Convention : std::uint8_t { none, lesson, deepspeed, megatron };
inline constexpr Convention all_conventions[] = {Convention::none, Convention::lesson,
                                                 Convention::deepspeed, Convention::megatron};
std::string_view name_of(Convention convention);

// plan memory.
struct PlanMemoryOptions : PlannedTraining {
  Accounting accounting = Accounting::gpu;
  Convention convention = Convention::none;
  std::string largest_layer;       // parameters, for deepspeed; empty: the model's
  std::int64_t gpus_per_node = 0;  // 0: all GPUs are on one
  int threads = 1;                 // of each rank, for ringworld
  bool verify = false;
  std::string svg;       // path; empty: none
  std::string json;      // as for show
  std::string settings;  // as for show
};

// How the program is written; attention and dropout are memory's, too, and stand in MemoryOptions.
struct PlannedProgram {
  Software software;
  bool overlap_given = false;
};

// plan step.
struct PlanStepOptions : PlannedTraining {
  PlannedProgram program;
  std::string svg;       // path; empty: none
  std::string json;      // as for show
  std::string settings;  // as for show
};

// plan cost.
struct PlanCostOptions : PlannedTraining {
  PlannedProgram program;
  std::string tokens;           // "15.6T"
  std::optional<double> price;  // dollars of a GPU for an hour; none: the machine's
  double overhead = 1.1;        // power of the building over that of the computers
  std::string svg;              // path; empty: none
  std::string json;             // as for show
  std::string settings;         // as for show
};

// plan search. Of the layout only batch and sequence length are asked.
struct PlanSearchOptions : PlannedTraining {
  PlannedProgram program;
  std::vector<std::int64_t> gpu_counts;
  SearchOrder order = SearchOrder::time;
  std::int64_t keep = 10;
  bool explain = false;
  bool no_offload = false;
  std::string tokens;           // empty: a billion
  std::optional<double> price;  // as for plan cost
  std::string json;             // as for show
  std::string settings;         // as for show
};

// plan validate.
struct PlanValidateOptions {
  std::string hardware;  // as PlannedTraining's
  bool all = false;
  std::string markdown;  // path; "-": standard output; empty: none
  std::string json;      // as for show
  std::string settings;  // as for show
};

// lesson.
inline constexpr const char* every_part = "all";
struct LessonOptions {
  std::string part = every_part;  // one of lesson_parts()
  std::string json;               // as for show
  std::string settings;           // as for show
};

// Help or version: to be printed by one rank, and that is all.
struct Text {
  std::string text;
};

using Command =
    std::variant<Text, TrainOptions, VerifyOptions, ShowOptions, ShowPipelineOptions,
                 ShowShardsOptions, CallOptions, BenchOptions, CompareOptions, CapabilitiesOptions,
                 DoctorOptions, PlanMemoryOptions, PlanStepOptions, PlanCostOptions,
                 PlanSearchOptions, PlanValidateOptions, LessonOptions>;

// `arguments` without the program's name. Throws UsageError that names what is wrong and, for
// unknown names, the nearest one; prints nothing and never exits.
Command parse_command_line(const std::vector<std::string>& arguments);

}  // namespace ringworld
