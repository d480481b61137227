#include "runtime/environment.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>
#include <limits>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <netdb.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sched.h>
#include <sys/uio.h>
#endif

#include "runtime/shared_arena.h"

namespace ringworld {

// --- CPUs and memory -----------------------------------------------------------------------------

std::vector<int> cpu_affinity() {
  std::vector<int> cpus;
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) {
        cpus.push_back(cpu);
      }
    }
  }
#endif
  return cpus;
}

int hardware_cpus() {
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (const std::size_t colon = line.find(": ");
        line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return {};
}

bool runs_as_root() {
  return ::geteuid() == 0;
}

Memory machine_memory() {
  Memory memory;
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  for (std::string rest; file >> key >> kib; std::getline(file, rest)) {
    if (key == "MemTotal:") {
      memory.total = Bytes(1024 * kib);
    } else if (key == "MemAvailable:") {
      memory.available = Bytes(1024 * kib);
    }
  }
  return memory;
}

std::optional<Space> space_of(const std::string& path) {
  struct statvfs space {};
  if (::statvfs(path.c_str(), &space) != 0) {
    return std::nullopt;
  }
  const auto block = static_cast<std::int64_t>(space.f_frsize);
  return Space{Bytes(block * static_cast<std::int64_t>(space.f_blocks)),
               Bytes(block * static_cast<std::int64_t>(space.f_bavail))};
}

std::string shared_huge_pages() {
  // "always within_size advise [never] deny force"
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string line;
  std::getline(file, line);
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  return open < close && close != std::string::npos ? line.substr(open + 1, close - open - 1)
                                                    : std::string();
}

// --- Another process's memory --------------------------------------------------------------------

namespace {

constexpr std::uint64_t written = 0x72696e67776f726c;

std::string try_mapping(const SharedArena& arena, pid_t owner) {
  std::string why_not;
  const auto mapped = MappedArena::open(owner, arena.file(), arena.size(), why_not);
  if (mapped == nullptr) {
    return why_not;
  }
  std::uint64_t value = 0;
  std::memcpy(&value, mapped->begin(), sizeof value);
  return value == written ? "" : "what the other process wrote is not there";
}

std::string try_copying(const std::uint64_t* from, pid_t owner) {
#ifdef __linux__
  std::uint64_t value = 0;
  iovec local{&value, sizeof value};
  iovec remote{const_cast<std::uint64_t*>(from), sizeof value};
  if (process_vm_readv(owner, &local, 1, &remote, 1, 0) != sizeof value) {
    return fmt::format("process_vm_readv: {}", std::strerror(errno));
  }
  return value == written ? "" : "what the other process wrote is not there";
#else
  static_cast<void>(from);
  static_cast<void>(owner);
  return "this system has no process_vm_readv";
#endif
}

// The two findings, from the process that tries to the one that asked: a line each.
void report(int pipe, const PeerMemory& peer) {
  const std::string text = peer.mapping + "\n" + peer.copying + "\n";
  static_cast<void>(!::write(pipe, text.data(), text.size()));
}

std::string read_all(int pipe) {
  std::string text;
  std::array<char, 1024> buffer;
  for (ssize_t got = 0; (got = ::read(pipe, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

PeerMemory try_peer_memory() {
  PeerMemory peer;
  const std::shared_ptr<SharedArena> arena = SharedArena::create(Bytes(4096), peer.mapping);
  if (arena != nullptr) {
    std::memcpy(arena->begin(), &written, sizeof written);
  }
  const auto private_value = std::make_unique<std::uint64_t>(written);
  int ends[2];
  if (::pipe(ends) != 0) {
    return {fmt::format("pipe: {}", std::strerror(errno)), "not tried"};
  }
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    // As ranks do to each other: the one that tries did not start the one whose memory it is, which
    // some systems would allow it more.
    if (arena != nullptr) {
      peer.mapping = try_mapping(*arena, self);
    }
    peer.copying = try_copying(private_value.get(), self);
    report(ends[1], peer);
    ::_exit(0);
  }
  ::close(ends[1]);
  const std::string text = child > 0 ? read_all(ends[0]) : "";
  ::close(ends[0]);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) {
    const std::string why =
        child < 0 ? fmt::format("fork: {}", std::strerror(errno))
                  : fmt::format("the process that tried ended with status {}", status);
    return {why, why};
  }
  const std::size_t end = text.find('\n');
  return {text.substr(0, end), text.substr(end + 1, text.size() - end - 2)};
}

// --- The host's name -----------------------------------------------------------------------------

std::string resolve(const std::string& name, std::string& problem) {
  addrinfo* list = nullptr;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  const int code = ::getaddrinfo(name.c_str(), nullptr, &hints, &list);
  if (code != 0) {
    problem = code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code);
    return {};
  }
  std::array<char, NI_MAXHOST> address{};
  ::getnameinfo(list->ai_addr, list->ai_addrlen, address.data(), address.size(), nullptr, 0,
                NI_NUMERICHOST);
  ::freeaddrinfo(list);
  return address.data();
}

std::string own_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

HostName look_up_host(const std::string& name, std::chrono::milliseconds limit,
                      const Resolver& resolver) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::promise<HostName> promise;
  std::future<HostName> answer = promise.get_future();
  // Nothing can end a look-up that blocks: its thread goes on alone.
  std::thread([name, resolver, promise = std::move(promise)]() mutable {
    HostName host{.name = name};
    host.address = resolver(name, host.problem);
    promise.set_value(std::move(host));
  }).detach();
  HostName host{.name = name};
  if (answer.wait_for(limit) == std::future_status::ready) {
    host = answer.get();
  } else {
    host.problem = fmt::format("no answer within {} s", static_cast<double>(limit.count()) / 1000);
  }
  host.took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  return host;
}

// --- The clock -----------------------------------------------------------------------------------

ClockFacts measure_clock() {
  using Clock = std::chrono::steady_clock;
  using Nanoseconds = std::chrono::duration<double, std::nano>;
  constexpr int batches = 10;
  constexpr int looks = 1000;
  ClockFacts facts{.step_ns = std::numeric_limits<double>::infinity(),
                   .look_ns = std::numeric_limits<double>::infinity()};
  for (int batch = 0; batch < batches; ++batch) {
    const auto begin = Clock::now();
    auto last = begin;
    for (int look = 0; look < looks; ++look) {
      const auto now = Clock::now();
      if (now > last) {
        facts.step_ns = std::min(facts.step_ns, Nanoseconds(now - last).count());
      }
      last = now;
    }
    facts.look_ns = std::min(facts.look_ns, Nanoseconds(last - begin).count() / looks);
  }
  std::ifstream("/sys/devices/system/clocksource/clocksource0/current_clocksource") >> facts.source;
  return facts;
}

}  // namespace ringworld
