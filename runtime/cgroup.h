// What the control groups (Linux) that hold this process allow it.
#pragma once

#include <string>

#include "runtime/bytes.h"

namespace ringworld {

struct CgroupLimits {
  double cpus = 0;    // processor time by quota, in CPUs; 0: no quota
  Bytes memory;       // 0: no limit
  Bytes memory_used;  // of that, by all processes it holds for
};

// The strictest of the process's own group and those above it, of versions 1 and 2. `root` stands
// before /proc and /sys/fs/cgroup, for tests.
CgroupLimits cgroup_limits(const std::string& root = "");

}  // namespace ringworld
