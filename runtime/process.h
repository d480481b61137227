// What the operating system knows of processes.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/bytes.h"

namespace ringworld {

// The largest resident size that this process has had: everything in memory, the program and its
// libraries included.
Bytes peak_resident_size();

// The processes of other ranks on this machine.
class PeerProcesses {
 public:
  PeerProcesses() = default;
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;
  ~PeerProcesses();

  void add(int rank, std::int64_t process);
  // The ranks whose processes have ended; none where the system cannot tell.
  std::vector<int> ended() const;

 private:
  std::vector<int> ranks_;
  std::vector<int> handles_;  // of their processes, which poll finds readable when those have ended
};

}  // namespace ringworld
