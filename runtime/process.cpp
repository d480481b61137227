#include "runtime/process.h"

#include <sys/resource.h>

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

}  // namespace ringworld
