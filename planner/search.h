// Which layout is the best for so many GPUs: every combination of degrees, chunks, sharding,
// micro-batch, recomputation and offloading is weighed, those that cannot be are counted with the
// reason, and the rest are ranked by time or by cost.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/hardware.h"
#include "planner/layout.h"
#include "planner/memory.h"
#include "planner/step.h"
#include "planner/transformer.h"

namespace ringworld {

enum class SearchOrder : std::uint8_t { time, cost };
inline constexpr SearchOrder all_search_orders[] = {SearchOrder::time, SearchOrder::cost};
std::string_view name_of(SearchOrder order);

struct SearchQuestion {
  std::int64_t gpus = 8;
  std::int64_t global_batch = 1;     // sequences
  std::int64_t sequence_length = 1;  // tokens
  DType precision = DType::bf16;
  DType gradient_precision = DType::f32;
  Software software = {};
  MemoryOptions memory = {};
  bool offload = true;  // weigh layouts that offload, too
  std::size_t keep = 10;
};

enum class Rejection : std::uint8_t {
  heads,        // the tensor degree does not divide heads or features
  layers,       // fewer layers than parts of the pipeline
  experts,      // the expert degree divides neither experts nor ranks
  sequence,     // the context degree does not divide the sequence
  batch,        // data-parallel ranks and micro-batch do not divide the global batch
  schedule,     // the schedule cannot serve so many micro-batches or chunks
  memory,       // of the GPU
  host_memory,  // of the node
  file,         // the node's drives
};
inline constexpr std::size_t rejection_count = 9;
std::string_view describe(Rejection rejection);

struct Found {
  Layout layout;
  StepTime time;
  Bytes memory;
  double tokens_per_second = 0;  // of all GPUs
  double mfu = 0;                // causal attention
};

struct Rejected {
  std::int64_t count = 0;
  // The one that came nearest to fit, or the first; what it lacks.
  std::string example = {};
};

struct SearchResult {
  std::vector<Found> best;  // the fastest first
  std::int64_t weighed = 0;
  std::int64_t fitting = 0;
  std::array<Rejected, rejection_count> rejected;

  Rejected& operator[](Rejection rejection) {
    return rejected[static_cast<std::size_t>(rejection)];
  }
  const Rejected& operator[](Rejection rejection) const {
    return rejected[static_cast<std::size_t>(rejection)];
  }
};

// Tensor ranks are never spread over nodes: measured layouts are not, and it would be slow.
SearchResult search_layouts(const Transformer& model, const Machine& machine,
                            const SearchQuestion& question);

// "8..1024": from 8 doubled up to 1024, which is the last; "16384": one. Throws UsageError that
// names the option.
std::vector<std::int64_t> parse_gpu_range(std::string_view text, std::string_view option);

}  // namespace ringworld
