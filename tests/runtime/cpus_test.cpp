#include "runtime/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace ringworld {
namespace {

TEST(Cpus, FollowTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) {
    ++first;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(allowed_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(allowed_cpus(), CPU_COUNT(&before));
}

TEST(Cpus, ThreadsShareWhatIsAllowed) {
  const int cpus = allowed_cpus();
  EXPECT_EQ(default_threads(1), cpus);
  EXPECT_EQ(default_threads(cpus), 1);
  EXPECT_EQ(default_threads(100 * cpus), 1);
}

}  // namespace
}  // namespace ringworld
