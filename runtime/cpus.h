// How many CPUs this process may use, and what follows for threads.
#pragma once

namespace ringworld {

// The affinity mask and the cgroup's CPU quota (v2 and v1), whichever is smaller; at least 1.
int allowed_cpus();

// Threads of one rank so that `local_ranks` of them share the CPUs: max(1, allowed / local_ranks).
int default_threads(int local_ranks);

}  // namespace ringworld
