// A CPU rank's backend for tests: fresh memory is filled with NaN, products run on one thread.
#pragma once

#include <memory>

#include "runtime/backend.h"

namespace ringworld {

inline std::unique_ptr<Backend> make_test_backend() {
  return make_cpu_backend(Device::create({.poison = true}), /*threads=*/1);
}

}  // namespace ringworld
