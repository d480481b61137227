// A communicator for each rank of a world of threads, on the CPU backend with poisoned memory.
#pragma once

#include <functional>

#include "collectives/communicator.h"

namespace ringworld {

inline void run_communicators(int ranks, const CommunicatorOptions& options,
                              const std::function<void(Communicator&)>& body) {
  run_on_threads(ranks, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({.poison = true}), 1);
    Communicator communicator(transport, *backend, options);
    body(communicator);
  });
}

inline void run_communicators(int ranks, const std::function<void(Communicator&)>& body) {
  run_communicators(ranks, {.algorithm = "ring"}, body);
}

// `count` elements that all have the value.
inline Tensor filled(Communicator& communicator, DType dtype, std::int64_t count, double value) {
  const Tensor x = communicator.backend().empty(dtype, Shape{count}, Category::communication);
  communicator.backend().fill(x, value);
  return x;
}

}  // namespace ringworld
