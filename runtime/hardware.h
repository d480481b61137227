// Accelerators that can be bought or rented, as their vendors describe them: the one table that
// plans and virtual devices read.
//
// Rates are of dense matrix products; datasheets that print them with sparsity print twice that.
// Where a device adds 16-bit and 8-bit products in f32 or, faster, in f16, the rate is with f32.
//
// A vendor's GB is taken as 10^9 bytes here, unless the document says GiB. NVIDIA's memories are
// built in powers of two, of which ECC and the driver keep a part: an H100 of "80 GB" shows 81,559
// MiB, an L4 of "24 GB" 23,034, a B200 of "192 GB" 183,359. 10^9 is 0.2 % to 7 % less than what
// these leave to programs, so that a plan that fits by the table fits on the device.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "runtime/bytes.h"

namespace ringworld {

// Floating-point operations per second, by the format of the factors; empty: the device has no unit
// for it, or the vendor does not say.
struct DenseRates {
  std::optional<double> f32 = {};   // without rounding the factors
  std::optional<double> tf32 = {};  // factors rounded to 10 bits of mantissa
  std::optional<double> bf16 = {};
  std::optional<double> f16 = {};
  std::optional<double> fp8 = {};
};

struct Accelerator {
  std::string_view name;  // model and memory: "A100-80GB"
  Bytes memory;
  double memory_bandwidth = 0;  // bytes per second
  DenseRates rates;
  // Bytes per second in each direction between one device and the others of its node, all its links
  // together: NVLink, Infinity Fabric or ICI, else PCIe.
  std::optional<double> link_bandwidth = {};
  std::optional<double> power = {};  // watts, the most it is made for
  std::string_view source;           // document, and where in it
};

std::span<const Accelerator> accelerators();

// Throws UsageError that names the nearest and lists all. Upper and lower case are the same.
const Accelerator& find_accelerator(std::string_view name);

}  // namespace ringworld
