#include "collectives/capabilities.h"

#include <fmt/format.h>

namespace ringworld {

std::string refusal(const Algorithm& algorithm, DType dtype, ReduceOp op) {
  // Schedules move bytes and reduce by the backend, which knows every format. An MPI library knows
  // neither 16-bit one; their sum and avg run in f32, see communicator.h.
  const bool half = dtype == DType::bf16 || dtype == DType::f16;
  const bool selects = op == ReduceOp::min || op == ReduceOp::max;
  if (algorithm.library && reduces(algorithm.operation) && half && selects) {
    return fmt::format("MPI libraries have no {} of {}", name_of(op), name_of(dtype));
  }
  return {};
}

}  // namespace ringworld
