// What ringworld doctor says to machines that this one is not.
#include "cli/doctor_checks.h"

#include <map>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

constexpr Bytes mib(std::int64_t amount) {
  return Bytes(amount << 20);
}

// A warning or failure has a remedy, and the texts hold the facts.
void expect(const Finding& finding, Verdict verdict,
            std::initializer_list<std::string_view> facts) {
  EXPECT_EQ(finding.verdict, verdict) << finding.found;
  EXPECT_TRUE(verdict == Verdict::ok || !finding.remedy.empty()) << finding.found;
  for (const std::string_view fact : facts) {
    EXPECT_NE((finding.found + "\n" + finding.remedy).find(fact), std::string::npos)
        << "no \"" << fact << "\" in: " << finding.found << "\n"
        << finding.remedy;
  }
}

RankFacts rank_on(std::vector<int> cpus, const std::string& host = "here") {
  return {.program = "ringworld 1", .library = "MPICH 4.0.2", .host = host, .cpus = cpus};
}

std::vector<RankFacts> ranks_on(int count, const std::vector<int>& cpus) {
  return std::vector<RankFacts>(static_cast<std::size_t>(count), rank_on(cpus));
}

TEST(DoctorChecks, Launcher) {
  const Launcher none;
  const Launcher mpich{.name = "mpiexec of MPICH", .library = "MPICH", .rank = 0};
  const Launcher open_mpi{.name = "mpiexec of Open MPI", .library = "Open MPI", .rank = 0};
  const Launcher srun{.name = "srun", .rank = 0};
  const auto checked = [](const Launcher& launcher, std::string_view library,
                          std::string_view mpiexec, int ranks, bool as_root = false) {
    return check_launcher(launcher, library, mpiexec, ranks, as_root);
  };
  expect(checked(none, "MPICH 4.0.2", "MPICH", 1), Verdict::ok, {"one rank alone", "mpiexec -n 4"});
  expect(checked(none, "MPICH 4.0.2", "", 1, true), Verdict::ok,
         {"one rank alone", "mpiexec -n 4"});
  expect(checked(none, "Open MPI v4.1.4", "Open MPI", 1), Verdict::ok,
         {"mpiexec --oversubscribe -n 4"});
  expect(checked(none, "Open MPI v4.1.4", "Open MPI", 1, true), Verdict::ok,
         {"mpiexec --oversubscribe --allow-run-as-root -n 4"});
  expect(checked(none, "MPICH 4.0.2", "Open MPI", 1), Verdict::warn,
         {"in the PATH belongs to Open MPI", "built with MPICH 4.0.2", "mpiexec of MPICH"});
  expect(checked(none, "Open MPI v4.1.4", "MPICH", 1), Verdict::warn,
         {"in the PATH belongs to MPICH", "mpiexec of Open MPI"});
  expect(checked(mpich, "MPICH 4.0.2", "", 4), Verdict::ok, {"mpiexec of MPICH"});
  expect(checked(open_mpi, "Open MPI v4.1.4", "", 1), Verdict::ok, {"mpiexec of Open MPI"});
  expect(checked(open_mpi, "MPICH 4.0.2", "", 1), Verdict::warn,
         {"that started this process belongs to Open MPI"});
  expect(checked(srun, "MPICH 4.0.2", "", 4), Verdict::ok, {"srun"});
}

TEST(DoctorChecks, Ranks) {
  std::vector<RankFacts> ranks = {rank_on({0}, "a"), rank_on({0}, "b"), rank_on({1}, "b")};
  expect(check_ranks(ranks), Verdict::ok, {"3 ranks: 1 on a, 2 on b"});
  ranks[2].program = "ringworld 2";
  expect(check_ranks(ranks), Verdict::fail, {"rank 2 on b is ringworld 2", "rank 0 on a"});
  ranks[2].program = ranks[0].program;
  ranks[1].library = "MPICH 4.1";
  expect(check_ranks(ranks), Verdict::fail, {"rank 1 on b", "MPICH 4.1"});
}

TEST(DoctorChecks, Cpus) {
  const std::string model = "a processor";
  expect(check_cpus(ranks_on(2, {0, 1}), 2, 0, model), Verdict::ok,
         {"2 ranks on 2 CPUs, a processor"});
  expect(check_cpus(ranks_on(8, {0, 1}), 2, 0, model), Verdict::warn,
         {"8 ranks on 2 CPUs", "results are right, timings are those of shared cores",
          "at most 2 ranks"});
  // A mask or a quota, not the machine, is what is small.
  expect(check_cpus(ranks_on(4, {2, 3}), 64, 0, model), Verdict::warn,
         {"4 ranks on 2 CPUs", "2 of 64 by affinity", "--bind-to none"});
  expect(check_cpus(ranks_on(4, {0, 1, 2, 3}), 4, 1.5, model), Verdict::warn,
         {"4 ranks on 1 CPU, quota 1.5 CPUs", "docker --cpus"});
  expect(check_cpus(ranks_on(1, {0, 1}), 2, 0.5, model), Verdict::ok, {"1 rank on 1 CPU"});
  // Each bound to a CPU of its own has one; two bound to the same have not.
  expect(check_cpus(std::vector{rank_on({0}), rank_on({1})}, 2, 0, model), Verdict::ok,
         {"2 ranks on 2 CPUs"});
  expect(check_cpus(std::vector{rank_on({0}), rank_on({1}), rank_on({1}), rank_on({2, 3})}, 4, 0,
                    model),
         Verdict::warn, {"2 ranks are bound to CPU 1 together", "--bind-to none"});
  // Where the system does not tell.
  expect(check_cpus(ranks_on(2, {}), 4, 0, ""), Verdict::ok, {"2 ranks on 4 CPUs"});
}

TEST(DoctorChecks, Memory) {
  const Memory memory{.total = mib(16384), .available = mib(8192)};
  expect(check_memory(memory, {}, 4), Verdict::ok, {"8.00 GiB available of 16.00 GiB"});
  expect(check_memory(memory, {}, 64), Verdict::warn, {"for 64 ranks", "start fewer"});
  CgroupLimits limits{.cpus = 0, .memory = mib(1024), .memory_used = mib(512)};
  expect(check_memory(memory, limits, 2), Verdict::ok,
         {"512.00 MiB available of 1.00 GiB, the limit of its control group"});
  expect(check_memory(memory, limits, 4), Verdict::warn, {"docker --memory"});
  limits.memory = mib(32768);  // more than there is
  expect(check_memory(memory, limits, 4), Verdict::ok, {"8.00 GiB available of 16.00 GiB"});
  expect(check_memory({}, {}, 4), Verdict::ok, {"unknown"});
}

TEST(DoctorChecks, SharedFiles) {
  expect(check_shared_files(Space{mib(8192), mib(8000)}), Verdict::ok, {"8.00 GiB"});
  expect(check_shared_files(Space{mib(64), mib(64)}), Verdict::warn,
         {"64.00 MiB free of 64.00 MiB", "bus error", "--shm-size"});
  expect(check_shared_files(Space{mib(8192), mib(1)}), Verdict::warn,
         {"1.00 MiB free of", "ls -l"});
  expect(check_shared_files(std::nullopt), Verdict::warn, {"there is none"});
}

TEST(DoctorChecks, MemoryOfPeers) {
  expect(check_mapping(""), Verdict::ok, {"can map"});
  expect(check_mapping("opening /proc/1/fd/3: Permission denied"), Verdict::warn,
         {"/proc/1/fd/3: Permission denied", "the same results", "SYS_PTRACE"});
  expect(check_mapping("mmap of a memory file: Cannot allocate memory"), Verdict::warn,
         {"Cannot allocate memory", "ulimit -v unlimited"});
  expect(check_copying(""), Verdict::ok, {"process_vm_readv"});
  expect(check_copying("process_vm_readv: Operation not permitted"), Verdict::warn,
         {"Operation not permitted", "ptrace_scope=0", "btl_vader_single_copy_mechanism none"});
}

TEST(DoctorChecks, HugePages) {
  expect(check_huge_pages("advise"), Verdict::ok, {"advise: shared memory may be in huge pages"});
  expect(check_huge_pages("never"), Verdict::ok, {"small pages", "echo advise"});
  expect(check_huge_pages(""), Verdict::ok, {"unknown"});
}

TEST(DoctorChecks, HostName) {
  using namespace std::chrono_literals;
  HostName host{.name = "laptop", .address = "127.0.1.1", .problem = "", .took = 3ms};
  expect(check_host_name(host), Verdict::ok, {"laptop is 127.0.1.1"});
  host.took = 1800ms;
  expect(check_host_name(host), Verdict::warn, {"1.8 s", "127.0.1.1 laptop", "/etc/hosts"});
  host = {.name = "laptop", .problem = "Name or service not known"};
  expect(check_host_name(host), Verdict::warn,
         {"laptop does not resolve: Name or service not known", "127.0.1.1 laptop"});
}

TEST(DoctorChecks, Clock) {
  expect(check_clock({.step_ns = 20, .look_ns = 30, .source = "tsc"}), Verdict::ok,
         {"tsc: a look takes 30 ns, the smallest step is 20 ns"});
  expect(check_clock({.step_ns = 70, .look_ns = 1200, .source = "hpet"}), Verdict::warn,
         {"hpet", "clocksource=tsc"});
  expect(check_clock({.step_ns = 10'000'000, .look_ns = 30}), Verdict::warn, {"10000000 ns"});
}

TEST(DoctorChecks, Threads) {
  const auto checked = [](const std::map<std::string, std::string>& variables, int ranks) {
    return check_threads(
        [&](const char* name) {
          const auto variable = variables.find(name);
          return variable == variables.end() ? nullptr : variable->second.c_str();
        },
        ranks);
  };
  expect(checked({}, 4), Verdict::ok, {"--threads"});
  expect(checked({{"OMP_WAIT_POLICY", "passive"}, {"OMP_NUM_THREADS", ""}}, 4), Verdict::ok, {});
  expect(checked({{"OMP_NUM_THREADS", "8"}}, 1), Verdict::warn,
         {"OMP_NUM_THREADS=8 is not followed", "--threads"});
  expect(checked({{"OPENBLAS_NUM_THREADS", "8"}, {"OMP_WAIT_POLICY", "active"}}, 1), Verdict::warn,
         {"OPENBLAS_NUM_THREADS=8", "OMP_WAIT_POLICY=active"});
  expect(checked({{"OMP_PROC_BIND", "true"}}, 2), Verdict::warn, {"OMP_PROC_BIND=true", "cores"});
  expect(checked({{"OMP_PROC_BIND", "true"}}, 1), Verdict::ok, {});
  expect(checked({{"OMP_PROC_BIND", "false"}}, 2), Verdict::ok, {});
}

}  // namespace
}  // namespace ringworld
