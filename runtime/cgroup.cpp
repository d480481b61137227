#include "runtime/cgroup.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

namespace ringworld {
namespace {

namespace fs = std::filesystem;

std::optional<double> number_in(const fs::path& file) {
  double number = 0;
  std::ifstream stream(file);
  return stream >> number ? std::optional(number) : std::nullopt;  // "max" is none
}

void limit_cpus(CgroupLimits& limits, double quota, double period) {
  if (quota > 0 && period > 0 && (limits.cpus == 0 || quota / period < limits.cpus)) {
    limits.cpus = quota / period;
  }
}

void limit_memory(CgroupLimits& limits, std::optional<double> limit, std::optional<double> used) {
  static constexpr double unlimited = 1e18;  // version 1 writes a number near 2^63
  if (limit && *limit < unlimited &&
      (limits.memory == Bytes(0) || *limit < static_cast<double>(limits.memory.value))) {
    limits.memory = Bytes(static_cast<std::int64_t>(*limit));
    limits.memory_used = Bytes(static_cast<std::int64_t>(used.value_or(0)));
  }
}

void read_group(CgroupLimits& limits, const fs::path& group) {
  if (std::ifstream file(group / "cpu.max"); file) {  // "150000 100000" or "max 100000"
    double quota = 0;
    double period = 0;
    if (file >> quota >> period) {
      limit_cpus(limits, quota, period);
    }
  }
  limit_memory(limits, number_in(group / "memory.max"), number_in(group / "memory.current"));
  // Version 1.
  limit_cpus(limits, number_in(group / "cpu.cfs_quota_us").value_or(0),
             number_in(group / "cpu.cfs_period_us").value_or(0));
  limit_memory(limits, number_in(group / "memory.limit_in_bytes"),
               number_in(group / "memory.usage_in_bytes"));
}

}  // namespace

CgroupLimits cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  const fs::path mount = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  // "4:cpu,cpuacct:/user.slice", in version 2 "0::/user.slice".
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path own = fs::path(line.substr(second + 1)).relative_path();
    const std::vector<fs::path> hierarchies = controllers.empty()
                                                  ? std::vector<fs::path>{mount, mount / "unified"}
                                                  : std::vector<fs::path>{mount / controllers};
    for (const fs::path& hierarchy : hierarchies) {
      // A container may see its own group at the mount: then the rest of the path is not there.
      fs::path group = hierarchy;
      read_group(limits, group);
      for (const fs::path& part : own) {
        group /= part;
        read_group(limits, group);
      }
    }
  }
  return limits;
}

}  // namespace ringworld
