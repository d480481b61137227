#include "runtime/launcher.h"

#include <array>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

namespace ringworld {
namespace {

std::optional<int> number(const Environment& environment, const char* name) {
  const char* text = environment(name);
  return text == nullptr ? std::nullopt : std::optional(std::atoi(text));
}

// Name and library only.
Launcher identify(const Environment& environment) {
  const auto has = [&](const char* name) { return environment(name) != nullptr; };
  if (has("OMPI_COMM_WORLD_SIZE")) {
    return {.name = "mpiexec of Open MPI", .library = "Open MPI"};
  }
  if (has("HYDI_CONTROL_FD") || (has("PMI_RANK") && has("MPI_LOCALRANKID"))) {
    return {.name = "mpiexec of MPICH", .library = "MPICH"};
  }
  // A shell that salloc opens, or a batch script, is no step of srun's.
  if (has("SLURM_STEP_NUM_TASKS") && has("SLURM_PROCID")) {
    return {.name = "srun"};
  }
  return {.name = has("PMI_RANK") ? "a PMI launcher" : has("PMIX_RANK") ? "a PMIx launcher" : ""};
}

std::string several_processes(const Environment& environment, bool by_srun) {
  const auto shows = [&](const char* name, int above) {
    const std::optional<int> value = number(environment, name);
    return value && *value > above ? fmt::format("{} is {}", name, *value) : std::string();
  };
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (std::string evidence = shows(size, 1); !evidence.empty()) {
      return evidence;
    }
  }
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (std::string evidence = shows(rank, 0); !evidence.empty()) {
      return evidence;
    }
  }
  return by_srun ? shows("SLURM_STEP_NUM_TASKS", 1) : std::string();
}

}  // namespace

Launcher find_launcher(const Environment& environment) {
  Launcher launcher = identify(environment);
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (!launcher.rank) {
      launcher.rank = number(environment, rank);
    }
  }
  // The variables of a Slurm job are inherited by all that runs in it, so they count only where
  // nothing else says who started the process.
  const bool by_srun = launcher.name == "srun";
  if (by_srun && !launcher.rank) {
    launcher.rank = number(environment, "SLURM_PROCID");
  }
  launcher.several = several_processes(environment, by_srun);
  return launcher;
}

const Launcher& find_launcher() {
  static const Launcher launcher =
      find_launcher([](const char* name) { return std::getenv(name); });
  return launcher;
}

std::string library_family(std::string_view library) {
  const auto names = [&](std::string_view name) {
    return library.find(name) != std::string_view::npos;
  };
  if (names("Open MPI") || names("OpenRTE") || names("PRRTE")) {
    return "Open MPI";
  }
  return names("MPICH") || names("HYDRA") || names("Intel(R) MPI") ? "MPICH" : "";
}

std::string library_of_mpiexec() {
  std::FILE* pipe = ::popen("timeout 5 mpiexec --version 2>/dev/null </dev/null", "r");
  if (pipe == nullptr) {
    return {};
  }
  std::string text;
  std::array<char, 4096> buffer;
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), got);
  }
  ::pclose(pipe);
  return library_family(text);
}

std::string launcher_problem(int world_size, std::string_view library, const Launcher& launcher) {
  if (world_size > 1 || launcher.several.empty()) {
    return {};
  }
  const std::string subject = launcher.name.empty()                  ? "a launcher"
                              : launcher.name.starts_with("mpiexec") ? "the " + launcher.name
                                                                     : launcher.name;
  const std::string found = fmt::format(
      "this program was built with {}, which sees one process, but {} has started several ({})",
      library, subject, launcher.several);
  if (launcher.name == "srun") {
    return found + fmt::format(
                       " without telling them of each other. Choose what {} understands: srun "
                       "--mpi=pmi2 or --mpi=pmix (srun --mpi=list shows what there is), or use "
                       "the mpiexec of {}. If each process is meant to run alone, unset {}",
                       library, library, "SLURM_STEP_NUM_TASKS");
  }
  return found + fmt::format(
                     ": it belongs to another MPI library. Start the program with the mpiexec of "
                     "{} (on Debian: mpiexec.mpich or mpiexec.openmpi), or build it with the "
                     "launcher's library",
                     library);
}

}  // namespace ringworld
