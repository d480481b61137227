// How long one kernel takes on a device: the efficiency model of matrix products and of what only
// moves memory. Its constants are the device's (planner/hardware.h).
#pragma once

#include "planner/hardware.h"

namespace ringworld {

// What a kernel's time depends on, taken out of a machine once.
struct DeviceSpeed {
  double matmul_rate = 0;  // FLOP/s of the best matrix product, kept through a step
  double flash_rate = 0;   // FLOP/s of fused attention
  double memory_rate = 0;  // bytes per second of elementwise kernels
  double kernel_seconds = 0;
  double processors = 1;
};
// `fp8`: factors of matrix products are rounded to 8 bits, all else has the format. Throws
// UsageError where the device has no unit for them.
DeviceSpeed speed_of(const Machine& machine, DType format, bool fp8 = false);

// (rows, inner) x (inner, columns), 16-bit factors. A matrix product is cut into tiles, one for
// each processor at a time, so that the last round may leave processors idle; a tile costs some
// steps of its inner loop to begin and to end; and inner may be cut, so that few tiles still fill
// the device. The best of the usual tile sizes and cuts counts, and no less than what memory takes.
double matmul_seconds(const DeviceSpeed& speed, double rows, double columns, double inner);

// A kernel that reads and writes so many bytes.
inline double elementwise_seconds(const DeviceSpeed& speed, double bytes) {
  return bytes / speed.memory_rate;
}

}  // namespace ringworld
