#include "runtime/process.h"

#include <sys/resource.h>

#ifdef __linux__
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

int open_process([[maybe_unused]] std::int64_t process) {
#if defined(__linux__) && defined(SYS_pidfd_open)
  return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));
#else
  return -1;
#endif
}

}  // namespace ringworld
