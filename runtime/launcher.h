// Who started this process, as far as the environment tells: the mpiexec of one MPI library or
// another, srun, or nobody.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ringworld {

struct Launcher {
  std::string name;  // "mpiexec of Open MPI", "srun"; empty: none, the process was started alone
  std::string library = {};  // whose it is: "MPICH" (and descendants), "Open MPI"; empty: any's
  // What the launcher calls this process.
  std::optional<int> rank = {};
  // What shows that it started several processes: "PMI_SIZE is 4"; empty when nothing does.
  std::string several = {};
};

// As std::getenv.
using Environment = std::function<const char*(const char* name)>;

Launcher find_launcher(const Environment& environment);
// Of this process, as it was when this was called first: before MPI starts, since a library may set
// a launcher's variables itself when there is none.
const Launcher& find_launcher();

// The library that the mpiexec in the PATH belongs to, in the same words; empty when there is none
// or it does not say. Runs it with --version.
std::string library_of_mpiexec();
// Of an MPI library as it describes itself: "Open MPI" for "Open MPI v4.1.4".
std::string library_family(std::string_view library);

// A launcher of another MPI library starts the processes, but the library that they are linked with
// does not understand how they are to find one another, and each is alone. Returns what is wrong
// and what to do when that is so; empty when not. `library`: "MPICH 4.0.2".
std::string launcher_problem(int world_size, std::string_view library, const Launcher& launcher);

}  // namespace ringworld
