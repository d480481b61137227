#include "planner/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

// Rows and columns of a tile, and what it reaches of the best: smaller ones load more for each
// product.
struct Tile {
  double rows;
  double columns;
  double share;
};
constexpr Tile tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.92}, {128, 64, 0.8}};
// In how many parts the inner dimension may be cut, each part no shorter than this.
constexpr double cuts[] = {1, 2, 4, 8};
constexpr double shortest_part = 1024;
// Steps of the inner loop that a tile's beginning and end cost.
constexpr double filling = 96;

}  // namespace

DeviceSpeed speed_of(const Machine& machine, DType format, bool fp8) {
  const double peak = machine.peak(format);
  if (peak == 0) {
    throw UsageError(fmt::format("--dtype: '{}': {} has no unit for it; ask for {}",
                                 name_of(format), machine.name,
                                 machine.bf16.value > 0 ? "bf16" : "f16"));
  }
  if (fp8 && machine.fp8.value == 0) {
    throw UsageError(fmt::format("--fp8: {} has no unit for it; leave it out", machine.name));
  }
  const double best =
      fp8 ? machine.fp8.value * machine.fp8_share.value : peak * machine.matmul_share.value;
  return {.matmul_rate = best * machine.sustained.value,
          .flash_rate = peak * machine.flash_share.value * machine.sustained.value,
          .memory_rate = machine.memory_bandwidth.value * machine.memory_share.value,
          .kernel_seconds = machine.kernel_seconds.value,
          .processors = machine.processors.value};
}

double matmul_seconds(const DeviceSpeed& speed, double rows, double columns, double inner) {
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles) {
    const double count = std::ceil(rows / tile.rows) * std::ceil(columns / tile.columns);
    for (const double cut : cuts) {
      if (cut > 1 && inner / cut < shortest_part) {
        break;
      }
      const double rounds = std::ceil(count * cut / speed.processors);
      least =
          std::min(least, rounds * tile.rows * tile.columns * (inner / cut + filling) / tile.share);
    }
  }
  const double computed = 2 * least * speed.processors / speed.matmul_rate;
  const double moved = 2 * (rows * inner + inner * columns + rows * columns) / speed.memory_rate;
  return std::max(computed, moved);
}

}  // namespace ringworld
