// What ringworld doctor makes of the facts: each check is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cgroup.h"
#include "runtime/environment.h"
#include "runtime/launcher.h"

namespace ringworld {

// A failure makes ringworld unusable; with a warning it works, but slower than it could, or not as
// the user may expect.
enum class Verdict : std::uint8_t { ok, warn, fail };
std::string_view name_of(Verdict verdict);

struct Finding {
  std::string name;  // what was looked at: "CPUs"
  Verdict verdict = Verdict::ok;
  std::string found = {};
  std::string remedy = {};  // beside ok: what could still be better
};

// What one rank is, for all to compare.
struct RankFacts {
  std::string program;  // "ringworld 0.1.0"
  std::string library;  // "MPICH 4.0.2"
  std::string host;
  std::vector<int> cpus;  // that it may run on
};

// `mpiexec`: the family of the one in the PATH, see library_of_mpiexec.
Finding check_launcher(const Launcher& launcher, std::string_view library, std::string_view mpiexec,
                       int ranks, bool as_root);
// That all ranks are the same program; `facts` by rank.
Finding check_ranks(std::span<const RankFacts> facts);

// Of one machine. `ranks`: those on it, by their facts or as a number.
Finding check_cpus(std::span<const RankFacts> ranks, int hardware, double quota,
                   const std::string& model);
Finding check_memory(const Memory& memory, const CgroupLimits& limits, int ranks);
Finding check_shared_files(const std::optional<Space>& space);  // in /dev/shm
Finding check_mapping(const std::string& why_not);
Finding check_copying(const std::string& why_not);
Finding check_huge_pages(const std::string& setting);
Finding check_host_name(const HostName& host);
Finding check_clock(const ClockFacts& clock);
Finding check_threads(const Environment& environment, int ranks);

}  // namespace ringworld
