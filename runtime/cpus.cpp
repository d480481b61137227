#include "runtime/cpus.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

#include "runtime/cgroup.h"

namespace ringworld {
namespace {

int affinity_cpus() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return CPU_COUNT(&set);
  }
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int allowed_cpus() {
  const int affinity = std::max(1, affinity_cpus());
  const double quota = cgroup_limits().cpus;
  return quota > 0 ? std::min(affinity, std::max(1, static_cast<int>(std::floor(quota))))
                   : affinity;
}

CpuMask allowed_cpu_mask() {
  CpuMask mask{};
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (std::size_t cpu = 0; cpu < 64 * mask.size() && cpu < CPU_SETSIZE; ++cpu) {
      mask[cpu / 64] |= CPU_ISSET(cpu, &set) ? std::uint64_t{1} << cpu % 64 : 0;
    }
  }
#endif
  return mask;
}

int count(const CpuMask& mask) {
  int cpus = 0;
  for (const std::uint64_t word : mask) {
    cpus += std::popcount(word);
  }
  return cpus;
}

int default_threads(int local_ranks) {
  return std::max(1, allowed_cpus() / std::max(1, local_ranks));
}

}  // namespace ringworld
