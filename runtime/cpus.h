// How many CPUs this process may use, and what follows for threads.
#pragma once

#include <array>
#include <cstdint>

namespace ringworld {

// The affinity mask and the cgroup's CPU quota (v2 and v1), whichever is smaller; at least 1.
int allowed_cpus();

// The CPUs that this process may run on, one bit each, as far as there is room.
using CpuMask = std::array<std::uint64_t, 16>;
CpuMask allowed_cpu_mask();
int count(const CpuMask& mask);

// Threads of one rank so that `local_ranks` of them share the CPUs: max(1, allowed / local_ranks).
int default_threads(int local_ranks);

}  // namespace ringworld
