// Machines to train on: an accelerator (runtime/hardware.h) in a node, on a network, at a price,
// and how much of its datasheet it gives in training.
//
// The constants of the efficiency model belong to a device: one set for all models and layouts that
// are planned on it. Every value carries who says so. What nobody published is an assumption and
// says that it is one; an unknown price is 0, and no dollars are printed.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/network.h"
#include "runtime/dtype.h"

namespace ringworld {

struct Constant {
  double value = 0;  // 0: unknown, or the machine has no such thing
  std::string source = {};
};

struct Machine {
  std::string name;  // the accelerator's: "H100-80GB"
  std::string node;  // what it stands in: "DGX H100"
  NetworkGeneration generation = NetworkGeneration::ampere;
  bool nvlink = true;
  bool in_switch = false;      // NVLS
  std::string network_source;  // of the three above

  // The accelerator. Rates in floating-point operations per second, by format of the factors.
  Constant memory;            // bytes
  Constant memory_bandwidth;  // bytes per second
  Constant f32, tf32, bf16, f16, fp8;
  Constant power;  // watts, of the accelerator alone

  // Its node and network; bandwidths in bytes per second and direction.
  Constant gpus_per_node;
  Constant within;                 // of one GPU to the others of its node, as Network::within
  Constant between;                // its share of the node's cards, as Network::between
  Constant card_latency;           // seconds
  Constant host_memory;            // bytes of a node
  Constant host_link;              // between one GPU and the host
  Constant adam_rate;              // parameters per second that the node's CPUs update
  Constant nvme;                   // bytes of a node
  Constant nvme_read, nvme_write;  // of a node
  Constant node_power;             // watts of a node, accelerators included, at most
  Constant price;                  // dollars per hour and GPU

  // The efficiency model (planner/kernels.h).
  Constant processors;      // streaming multiprocessors: how many tiles are computed at once
  Constant matmul_share;    // of the peak rate, that the best matrix product reaches
  Constant fp8_share;       // the same of the fp8 rate
  Constant sustained;       // of that, which is kept through a training step: fitted, see validate
  Constant flash_share;     // of the peak rate, that fused attention reaches
  Constant memory_share;    // of memory_bandwidth, that elementwise kernels reach
  Constant contention;      // of compute's speed, that communication takes while both run
  Constant kernel_seconds;  // from the end of a kernel to the work of the next

  // FLOP/s with factors of this format; 0: it has no unit for it.
  double peak(DType format) const;
  Network network() const;
};

// One numeric field of a machine: what a hardware file calls it, and its unit.
struct MachineField {
  std::string_view key;
  std::string_view unit;
  Constant Machine::*member;
  bool required;  // is never 0
};
std::span<const MachineField> machine_fields();

// The table: one row for each accelerator, or as a hardware file changes it.
class Machines {
 public:
  // The built-in rows.
  Machines();
  // A hardware file: {"machines": [{"name": "H100-80GB", "price": 2.5, "source": "our contract"}]}.
  // A row with a known name overrides the fields that it gives; with a new name it adds a machine,
  // that has the fields of the row named by "like". "source" is required, and stands behind every
  // value of the row. Throws UsageError, DataError for a file that cannot be read; both name the
  // file and the key.
  void read(const std::string& path);
  void add(std::string_view json, const std::string& path);

  // Throws UsageError that names the nearest and lists all. Upper and lower case are the same.
  const Machine& find(std::string_view name) const;
  const std::deque<Machine>& all() const { return rows_; }

 private:
  Machine* find_or_null(std::string_view name);

  std::deque<Machine> rows_;
};

}  // namespace ringworld
