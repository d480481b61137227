// What the system gives to ranks, found out by asking and by trying. Nothing here throws: what
// cannot be found out is empty.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bytes.h"

namespace ringworld {

// The CPUs that this process may run on, by number.
std::vector<int> cpu_affinity();
int hardware_cpus();
std::string cpu_model();  // "AMD EPYC 7B13"

bool runs_as_root();

struct Memory {
  Bytes total;      // of the machine; 0: unknown
  Bytes available;  // without swapping
};
Memory machine_memory();

struct Space {
  Bytes total;
  Bytes free;
};
// Of the file system that holds the path; nothing when there is no such path.
std::optional<Space> space_of(const std::string& path);

// Whether another process can get at this one's memory; each is why not, empty when it can. Starts
// a process that tries.
struct PeerMemory {
  std::string mapping;  // as the shared transport maps it
  std::string copying;  // by process_vm_readv
};
PeerMemory try_peer_memory();

// "never", "advise", ...: when memory files get huge pages.
std::string shared_huge_pages();

struct HostName {
  std::string name;
  std::string address = {};  // the first it resolves to
  std::string problem = {};  // why it does not resolve; empty when it does
  std::chrono::milliseconds took{0};
};
// How names are looked up: returns an address, or sets `problem`.
using Resolver = std::function<std::string(const std::string& name, std::string& problem)>;
std::string resolve(const std::string& name, std::string& problem);
std::string own_host_name();
// A look-up that takes longer than the limit is given up: it may block for minutes.
HostName look_up_host(const std::string& name, std::chrono::milliseconds limit,
                      const Resolver& resolver = resolve);

// The clock that timings are taken with.
struct ClockFacts {
  double step_ns = 0;       // the smallest difference between two looks
  double look_ns = 0;       // what a look takes
  std::string source = {};  // "tsc", "hpet", ...
};
ClockFacts measure_clock();

}  // namespace ringworld
