#include "cli/doctor_checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ringworld {
namespace {

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::warn:
      return "warn";
    case Verdict::fail:
      return "FAIL";
  }
  return "";
}

// --- The job -------------------------------------------------------------------------------------

Finding check_launcher(const Launcher& launcher, std::string_view library, std::string_view mpiexec,
                       int ranks, bool as_root) {
  Finding finding{.name = "launcher"};
  const std::string family = library_family(library);
  const bool alone = launcher.name.empty() && ranks == 1;
  const std::string_view other = alone ? mpiexec : std::string_view(launcher.library);
  if (!other.empty() && !family.empty() && other != family) {
    finding.verdict = Verdict::warn;
    finding.found = fmt::format(
        "the mpiexec {} belongs to {}, and this program was built with {}: of several processes "
        "each would be alone",
        alone ? "in the PATH" : "that started this process", other, library);
    finding.remedy = fmt::format(
        "start it with the mpiexec of {} (on Debian: mpiexec.mpich or mpiexec.openmpi), or build "
        "it with {}",
        family, other);
  } else if (alone) {
    finding.found = "none, this is one rank alone";
    // Open MPI wants to be told that more ranks than cores are meant, and as root at all.
    finding.remedy = fmt::format("for several: mpiexec{}{} -n 4 ringworld doctor",
                                 family == "Open MPI" ? " --oversubscribe" : "",
                                 family == "Open MPI" && as_root ? " --allow-run-as-root" : "");
  } else {
    finding.found = launcher.name.empty() ? "unknown" : launcher.name;
  }
  return finding;
}

Finding check_ranks(std::span<const RankFacts> facts) {
  Finding finding{.name = "ranks"};
  std::map<std::string, int> hosts;
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    ++hosts[facts[rank].host];
    if (finding.verdict == Verdict::ok &&
        (facts[rank].program != facts[0].program || facts[rank].library != facts[0].library)) {
      finding.verdict = Verdict::fail;
      finding.found = fmt::format("rank {} on {} is {} with {}, rank 0 on {} is {} with {}", rank,
                                  facts[rank].host, facts[rank].program, facts[rank].library,
                                  facts[0].host, facts[0].program, facts[0].library);
      finding.remedy = "install the same build on every machine";
    }
  }
  if (finding.verdict == Verdict::ok) {
    std::vector<std::string> parts;
    for (const auto& [host, ranks] : hosts) {
      parts.push_back(fmt::format("{} on {}", ranks, host));
    }
    finding.found = fmt::format("{}: {}", counted(static_cast<std::int64_t>(facts.size()), "rank"),
                                fmt::join(parts, ", "));
  }
  return finding;
}

// --- A machine: processors and memory ------------------------------------------------------------

Finding check_cpus(std::span<const RankFacts> ranks, int hardware, double quota,
                   const std::string& model) {
  Finding finding{.name = "CPUs"};
  std::set<int> allowed;
  std::map<int, int> bound;  // ranks that may run on this CPU alone
  int crowded = -1;          // a CPU with two of them
  for (const RankFacts& rank : ranks) {
    allowed.insert(rank.cpus.begin(), rank.cpus.end());
    if (rank.cpus.size() == 1 && ++bound[rank.cpus[0]] > 1) {
      crowded = rank.cpus[0];
    }
  }
  const int by_affinity = allowed.empty() ? hardware : static_cast<int>(allowed.size());
  const int by_quota = quota > 0 ? std::max(1, static_cast<int>(std::floor(quota))) : hardware;
  const int cpus = std::min(by_affinity, by_quota);
  const int count = static_cast<int>(ranks.size());

  std::string limits;
  if (by_affinity < hardware) {
    limits += fmt::format(", {} of {} by affinity", by_affinity, hardware);
  }
  if (quota > 0) {
    limits += fmt::format(", quota {:.3g} CPUs", quota);
  }
  finding.found = fmt::format("{} on {}{}{}{}", counted(count, "rank"), counted(cpus, "CPU"),
                              limits, model.empty() ? "" : ", ", model);
  if (count > cpus) {
    finding.verdict = Verdict::warn;
    finding.found += ": results are right, timings are those of shared cores";
    finding.remedy =
        cpus < hardware
            ? fmt::format(
                  "the machine has {}: let the job use more of them (mpiexec --bind-to "
                  "none, taskset, docker --cpus, srun --cpus-per-task), or start at most "
                  "{}",
                  counted(hardware, "CPU"), counted(cpus, "rank"))
            : fmt::format("to measure, start at most {} here", counted(cpus, "rank"));
  } else if (crowded >= 0 && count > 1) {
    finding.verdict = Verdict::warn;
    finding.found +=
        fmt::format(": {} ranks are bound to CPU {} together", bound[crowded], crowded);
    finding.remedy = "let the launcher bind each to a CPU of its own, or none: --bind-to none";
  }
  return finding;
}

Finding check_memory(const Memory& memory, const CgroupLimits& limits, int ranks) {
  Finding finding{.name = "memory"};
  if (memory.total == Bytes(0)) {
    finding.found = "unknown";
    return finding;
  }
  static constexpr Bytes enough{256 << 20};  // for a rank with a small model
  const bool limited = limits.memory > Bytes(0) && limits.memory < memory.total;
  const Bytes available =
      limited ? std::min(memory.available, limits.memory - limits.memory_used) : memory.available;
  finding.found = fmt::format("{} available of {}{}", to_string(available),
                              to_string(limited ? limits.memory : memory.total),
                              limited ? ", the limit of its control group" : "");
  if (available < ranks * enough) {
    finding.verdict = Verdict::warn;
    finding.found += fmt::format(" for {}", counted(ranks, "rank"));
    finding.remedy =
        fmt::format("ranks that run out of memory are killed: start fewer, end other programs{}",
                    limited ? ", or raise the limit (docker --memory, srun --mem)" : "");
  }
  return finding;
}

Finding check_shared_files(const std::optional<Space>& space) {
  Finding finding{.name = "/dev/shm"};
  static constexpr Bytes of_a_container{64 << 20};  // unless it is told otherwise
  if (!space) {
    finding.verdict = Verdict::warn;
    finding.found = "there is none, and MPI libraries put their queues there";
    finding.remedy = "as root: mount -t tmpfs tmpfs /dev/shm";
    return finding;
  }
  finding.found = fmt::format("{} free of {}; ringworld's shared memory is not in it",
                              to_string(space->free), to_string(space->total));
  if (space->total <= of_a_container || space->free < of_a_container) {
    finding.verdict = Verdict::warn;
    finding.found += ", but an MPI library's is, which ends with a bus error when it is full";
    finding.remedy = space->total <= of_a_container
                         ? "start the container with more, docker run --shm-size=1g"
                         : "remove what fills it: ls -l /dev/shm";
  }
  return finding;
}

Finding check_mapping(const std::string& why_not) {
  Finding finding{.name = "mapped memory"};
  finding.found = "ranks of this machine can map each other's memory";
  if (!why_not.empty()) {
    finding.verdict = Verdict::warn;
    finding.found = fmt::format(
        "ranks cannot map each other's memory: {}; they exchange messages "
        "instead, with the same results, but slower",
        why_not);
    finding.remedy = why_not.find("allocate memory") != std::string::npos
                         ? "let processes reserve more address space: ulimit -v unlimited"
                         : "run all ranks as one user, with /proc mounted; in a container that "
                           "forbids it, docker "
                           "run --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined";
  }
  return finding;
}

Finding check_copying(const std::string& why_not) {
  Finding finding{.name = "copied memory"};
  finding.found = "ranks can copy from each other's memory (process_vm_readv)";
  if (!why_not.empty()) {
    finding.verdict = Verdict::warn;
    finding.found = fmt::format(
        "ranks cannot copy from each other's memory: {}; ringworld does "
        "not, but MPI libraries do with large messages",
        why_not);
    finding.remedy =
        "docker run --cap-add=SYS_PTRACE, or as root: sysctl kernel.yama.ptrace_scope=0; if Open "
        "MPI complains (\"Read -1, expected ...\"): mpiexec --mca "
        "btl_vader_single_copy_mechanism none";
  }
  return finding;
}

Finding check_huge_pages(const std::string& setting) {
  Finding finding{.name = "huge pages"};
  if (setting.empty()) {
    finding.found = "unknown for shared memory";
  } else if (setting == "never" || setting == "deny") {
    finding.found = fmt::format("{}: shared memory is in small pages", setting);
    finding.remedy =
        "for large collectives, as root: echo advise > "
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  } else {
    finding.found = fmt::format("{}: shared memory may be in huge pages", setting);
  }
  return finding;
}

// --- A machine: name, clock, threads -------------------------------------------------------------

Finding check_host_name(const HostName& host) {
  Finding finding{.name = "host name"};
  static constexpr std::chrono::milliseconds slow{500};
  if (!host.problem.empty()) {
    finding.verdict = Verdict::warn;
    finding.found = fmt::format("{} does not resolve: {}; MPI libraries look up their own machine",
                                host.name, host.problem);
  } else {
    finding.found = fmt::format("{} is {}", host.name, host.address);
    if (host.took >= slow) {
      finding.verdict = Verdict::warn;
      finding.found += fmt::format(", but the answer took {:.1f} s",
                                   static_cast<double>(host.took.count()) / 1000);
    }
  }
  if (finding.verdict != Verdict::ok) {
    finding.remedy = fmt::format("add the line \"127.0.1.1 {}\" to /etc/hosts", host.name);
  }
  return finding;
}

Finding check_clock(const ClockFacts& clock) {
  Finding finding{.name = "clock"};
  static constexpr double slow_ns = 250;
  finding.found =
      fmt::format("{}{}a look takes {:.0f} ns, the smallest step is {:.0f} ns", clock.source,
                  clock.source.empty() ? "" : ": ", clock.look_ns, clock.step_ns);
  if (clock.look_ns > slow_ns || clock.step_ns > 1000) {
    finding.verdict = Verdict::warn;
    finding.found += "; timings below some microseconds mean little";
    finding.remedy =
        "let the kernel use the processor's counter: boot with clocksource=tsc, or ask who runs "
        "the virtual machine";
  }
  return finding;
}

Finding check_threads(const Environment& environment, int ranks) {
  Finding finding{.name = "threads"};
  const auto set = [&](const char* name) {
    const char* value = environment(name);
    return value == nullptr || *value == '\0' ? std::string() : fmt::format("{}={}", name, value);
  };
  std::vector<std::string> problems;
  std::vector<std::string> remedies;
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    if (const std::string setting = set(name); !setting.empty()) {
      problems.push_back(fmt::format("{} is not followed", setting));
      remedies.push_back(fmt::format("unset {} and give --threads", name));
    }
  }
  if (const std::string policy = set("OMP_WAIT_POLICY");
      policy == "OMP_WAIT_POLICY=active" || policy == "OMP_WAIT_POLICY=ACTIVE") {
    problems.push_back(fmt::format("{} makes waiting threads keep their cores", policy));
    remedies.emplace_back("unset OMP_WAIT_POLICY");
  }
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    const std::string setting = set(name);
    if (ranks > 1 && !setting.empty() && setting != "OMP_PROC_BIND=false") {
      problems.push_back(fmt::format("{} may put all ranks' threads on the same cores", setting));
      remedies.push_back(fmt::format("unset {} and let mpiexec bind the ranks", name));
    }
  }
  if (problems.empty()) {
    finding.found = "each rank takes its share of the CPUs, unless --threads says otherwise";
  } else {
    finding.verdict = Verdict::warn;
    finding.found = fmt::format("{}", fmt::join(problems, "; "));
    finding.remedy = fmt::format("{}", fmt::join(remedies, "; "));
  }
  return finding;
}

}  // namespace ringworld
