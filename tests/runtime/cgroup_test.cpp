// Limits of control groups, read from trees as Linux shows them.
#include "runtime/cgroup.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

class Cgroup : public testing::Test {
 protected:
  void file(const std::string& path, const std::string& content) {
    root_.write(path, content + "\n");
  }
  CgroupLimits limits() { return cgroup_limits(root_.path()); }

  const TemporaryDirectory root_;
};

TEST_F(Cgroup, NoGroupsNoLimits) {
  EXPECT_EQ(limits().cpus, 0);
  EXPECT_EQ(limits().memory, Bytes(0));
}

TEST_F(Cgroup, Version2InAContainer) {
  file("proc/self/cgroup", "0::/");
  file("sys/fs/cgroup/cpu.max", "150000 100000");
  file("sys/fs/cgroup/memory.max", "1073741824");
  file("sys/fs/cgroup/memory.current", "4096");
  EXPECT_EQ(limits().cpus, 1.5);
  EXPECT_EQ(limits().memory, Bytes(1 << 30));
  EXPECT_EQ(limits().memory_used, Bytes(4096));
}

TEST_F(Cgroup, Version2TheStrictestOnThePath) {
  file("proc/self/cgroup", "0::/user.slice/session.scope");
  file("sys/fs/cgroup/user.slice/cpu.max", "200000 100000");
  file("sys/fs/cgroup/user.slice/session.scope/cpu.max", "400000 100000");
  file("sys/fs/cgroup/memory.max", "max");
  file("sys/fs/cgroup/user.slice/memory.max", "4096");
  file("sys/fs/cgroup/user.slice/session.scope/memory.max", "8192");
  file("sys/fs/cgroup/other.slice/cpu.max", "50000 100000");
  EXPECT_EQ(limits().cpus, 2);
  EXPECT_EQ(limits().memory, Bytes(4096));
}

TEST_F(Cgroup, Version1) {
  file("proc/self/cgroup", "9:name=systemd:/\n5:memory:/job\n3:cpu,cpuacct:/job");
  file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  file("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000");
  file("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648");
  file("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1048576");
  EXPECT_EQ(limits().cpus, 3);
  EXPECT_EQ(limits().memory, Bytes(std::int64_t{2} << 30));
  EXPECT_EQ(limits().memory_used, Bytes(1 << 20));
}

// The path is the host's, and what is mounted is the container's own group.
TEST_F(Cgroup, Version1InAContainer) {
  file("proc/self/cgroup", "5:memory:/docker/4f2a\n3:cpu:/docker/4f2a");
  file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000");
  file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(limits().cpus, 0.5);
  EXPECT_EQ(limits().memory, Bytes(0));
}

TEST_F(Cgroup, BothVersions) {
  file("proc/self/cgroup", "3:cpu:/\n0::/init.scope");
  file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  file("sys/fs/cgroup/unified/init.scope/memory.max", "8192");
  EXPECT_EQ(limits().cpus, 0);
  EXPECT_EQ(limits().memory, Bytes(8192));
}

}  // namespace
}  // namespace ringworld
