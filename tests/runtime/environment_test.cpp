// What the system says of itself, held against other ways to ask it.
#include "runtime/environment.h"

#include <future>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "tests/support/command.h"

namespace ringworld {
namespace {

using namespace std::chrono_literals;

std::string output_of(const std::string& command) {
  std::string output = run_command(command).output;
  while (output.ends_with('\n')) {
    output.pop_back();
  }
  return output;
}

TEST(Environment, CpusAreThoseOfTheSystem) {
  EXPECT_EQ(std::to_string(cpu_affinity().size()), output_of("env -u OMP_NUM_THREADS nproc"));
  EXPECT_EQ(std::to_string(hardware_cpus()), output_of("getconf _NPROCESSORS_ONLN"));
}

TEST(Environment, MemoryIsThatOfTheSystem) {
  const Memory memory = machine_memory();
  EXPECT_EQ(std::to_string(memory.total.value / 1024),
            output_of("awk '/^MemTotal/ {print $2}' /proc/meminfo"));
  EXPECT_GT(memory.available, Bytes(0));
  EXPECT_LE(memory.available, memory.total);
}

TEST(Environment, SpaceOfAFileSystem) {
  const std::optional<Space> space = space_of("/tmp");
  ASSERT_TRUE(space);
  EXPECT_EQ(std::to_string(space->total.value),
            output_of("df --block-size=1 --output=size /tmp | tail -n 1 | tr -d ' '"));
  EXPECT_LE(space->free, space->total);
  EXPECT_FALSE(space_of("/no/such/directory"));
}

// A problem is named when a call fails: no other outcome is left open.
TEST(Environment, PeerMemoryIsMappedOrTheReasonNamed) {
  const PeerMemory peer = try_peer_memory();
  if (!peer.mapping.empty()) {
    EXPECT_NE(peer.mapping.find(": "), std::string::npos) << peer.mapping;
  }
  if (!peer.copying.empty()) {
    EXPECT_NE(peer.copying.find("process_vm_readv: "), std::string::npos) << peer.copying;
  }
}

// A process without privileges may keep its memory to itself.
TEST(EnvironmentDeathTest, PeerMemoryThatIsForbidden) {
#ifdef __linux__
  const auto ends_with_problems = [] {
    constexpr uid_t nobody = 65534;
    if (::getuid() == 0 && ::setresuid(nobody, nobody, nobody) != 0) {
      std::exit(2);
    }
    ::prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL);
    const PeerMemory peer = try_peer_memory();
    std::exit(peer.mapping.find("ermission") == std::string::npos       ? 3
              : peer.copying.find("not permitted") == std::string::npos ? 4
                                                                        : 0);
  };
  EXPECT_EXIT(ends_with_problems(), testing::ExitedWithCode(0), "");
#endif
}

TEST(Environment, ANameThatResolves) {
  const HostName host = look_up_host("localhost", 10s);
  EXPECT_EQ(host.problem, "");
  EXPECT_TRUE(host.address == "127.0.0.1" || host.address == "::1") << host.address;
}

TEST(Environment, ANameThatDoesNotResolve) {
  const HostName host =
      look_up_host("some-host", 10s, [](const std::string& name, std::string& problem) {
        problem = name + " is unknown";
        return std::string();
      });
  EXPECT_EQ(host.problem, "some-host is unknown");
  EXPECT_EQ(host.address, "");
}

TEST(Environment, ALookUpThatBlocksIsGivenUp) {
  std::promise<void> end;
  const HostName host = look_up_host(
      "some-host", 10ms, [ended = end.get_future().share()](const std::string&, std::string&) {
        ended.wait();
        return std::string("never");
      });
  EXPECT_EQ(host.problem, "no answer within 0.01 s");
  EXPECT_EQ(host.name, "some-host");
  end.set_value();
}

TEST(Environment, TheClockGoesForward) {
  const ClockFacts clock = measure_clock();
  EXPECT_GE(clock.step_ns, 1);
  EXPECT_GT(clock.look_ns, 0);
  EXPECT_LT(clock.look_ns, 1e6);
}

}  // namespace
}  // namespace ringworld
