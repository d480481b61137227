#include "runtime/cpus.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

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

int cpus_of(double quota, double period) {
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::floor(quota / period))) : 0;
}

// 0 when there is no quota. A container sees its own cgroup at the root of the mount.
int quota_cpus() {
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2) {
    std::string quota;
    double period = 0;
    v2 >> quota >> period;
    return quota == "max" || quota.empty() ? 0 : cpus_of(std::stod(quota), period);
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_file >> quota && period_file >> period ? cpus_of(quota, period) : 0;
}

}  // namespace

int allowed_cpus() {
  const int affinity = std::max(1, affinity_cpus());
  const int quota = quota_cpus();
  return quota > 0 ? std::min(affinity, quota) : affinity;
}

int default_threads(int local_ranks) {
  return std::max(1, allowed_cpus() / std::max(1, local_ranks));
}

}  // namespace ringworld
