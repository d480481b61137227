#include "cli/plan_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

// "989.5 TFLOP/s", "80 GB", "0.803 of peak".
std::string value_text(const MachineField& field, double value) {
  if (field.unit == "FLOP/s") {
    return fmt::format("{:.4g} TFLOP/s", value / 1e12);
  }
  if (field.unit == "bytes") {
    return fmt::format("{:.5g} GB", value / 1e9);
  }
  if (field.unit == "bytes/s") {
    return fmt::format("{:.4g} GB/s", value / 1e9);
  }
  if (field.unit == "s") {
    return fmt::format("{:.3g} us", value * 1e6);
  }
  return field.unit.empty() ? fmt::format("{:.5g}", value)
                            : fmt::format("{:.4g} {}", value, field.unit);
}

std::string overlap_text(const Software& s) {
  std::vector<std::string_view> axes;
  for (const OverlapAxis axis : all_overlap_axes) {
    if (overlap_of(s, axis)) {
      axes.push_back(name_of(axis));
    }
  }
  return axes.empty() ? "none" : fmt::format("{}", fmt::join(axes, ", "));
}

}  // namespace

SettledMachine settle_machine(const PlannedTraining& asked, const PlannedProgram& program) {
  if (asked.gpu.empty()) {
    throw UsageError("--gpu: missing; name the accelerator, for example --gpu H100-80GB");
  }
  Machines machines;
  if (!asked.hardware.empty()) {
    machines.read(asked.hardware);
  }
  SettledMachine settled{.machine = machines.find(asked.gpu), .software = program.software};
  settled.software.flash = asked.memory.activations.fused_attention;
  settled.software.dropout = asked.memory.activations.dropout;
  const Machine& m = settled.machine;
  settled.stated.push_back({"GPU", m.name, m.memory.source});
  settled.stated.push_back({"node", fmt::format("{}, {:.0f} GPUs", m.node, m.gpus_per_node.value),
                            m.gpus_per_node.source});
  settled.stated.push_back({"network model",
                            fmt::format("{}{}{}", name_of(m.generation), m.nvlink ? "" : ", PCIe",
                                        m.in_switch ? ", NVLS" : ""),
                            m.network_source});
  settled.stated.push_back({"overlap", overlap_text(settled.software),
                            program.overlap_given ? "--overlap" : "default; --overlap"});
  settled.stated.push_back({"8-bit products", program.software.fp8 ? "yes" : "no",
                            program.software.fp8 ? "--fp8" : "default; --fp8"});
  for (const MachineField& field : machine_fields()) {
    const Constant& constant = m.*field.member;
    if (constant.value != 0) {
      settled.constants.push_back(
          {std::string(field.key), value_text(field, constant.value), constant.source});
    }
  }
  return settled;
}

}  // namespace ringworld
