#include "runtime/process.h"

#include <sys/resource.h>

#ifdef __linux__
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ringworld {

Bytes peak_resident_size() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return Bytes(usage.ru_maxrss);
#else
  return Bytes(1024 * static_cast<std::int64_t>(usage.ru_maxrss));
#endif
}

PeerProcesses::~PeerProcesses() {
#ifdef __linux__
  for (const int handle : handles_) {
    close(handle);
  }
#endif
}

void PeerProcesses::add([[maybe_unused]] int rank, [[maybe_unused]] std::int64_t process) {
#if defined(__linux__) && defined(SYS_pidfd_open)
  const auto handle = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));
  if (handle >= 0) {
    ranks_.push_back(rank);
    handles_.push_back(handle);
  }
#endif
}

std::vector<int> PeerProcesses::ended() const {
  std::vector<int> ended;
#ifdef __linux__
  std::vector<pollfd> polls;
  for (const int handle : handles_) {
    polls.push_back({handle, POLLIN, 0});
  }
  if (poll(polls.data(), polls.size(), 0) > 0) {
    for (std::size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents != 0) {
        ended.push_back(ranks_[i]);
      }
    }
  }
#endif
  return ended;
}

}  // namespace ringworld
