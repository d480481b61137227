#include "runtime/launcher.h"

#include <map>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

using Variables = std::map<std::string, std::string>;

Launcher found(const Variables& variables) {
  return find_launcher([&](const char* name) {
    const auto variable = variables.find(name);
    return variable == variables.end() ? nullptr : variable->second.c_str();
  });
}

// What the launchers set for the second of four processes, recorded.
const Variables mpich = {{"HYDI_CONTROL_FD", "7"}, {"MPI_LOCALNRANKS", "4"},
                         {"MPI_LOCALRANKID", "1"}, {"PMI_FD", "8"},
                         {"PMI_RANK", "1"},        {"PMI_SIZE", "4"}};
const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"PMIX_NAMESPACE", "695533569"},
                            {"PMIX_RANK", "1"}};
// srun --mpi=none.
const Variables srun = {{"SLURM_JOB_ID", "17"},
                        {"SLURM_NTASKS", "4"},
                        {"SLURM_PROCID", "1"},
                        {"SLURM_STEP_NUM_TASKS", "4"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) {
    variables[name] = value;
  }
  return variables;
}

TEST(Launcher, IsKnownByItsVariables) {
  EXPECT_EQ(found({}).name, "");
  EXPECT_EQ(found({}).rank, std::nullopt);
  EXPECT_EQ(found(mpich).name, "mpiexec of MPICH");
  EXPECT_EQ(found(mpich).rank, 1);
  EXPECT_EQ(found(open_mpi).name, "mpiexec of Open MPI");
  EXPECT_EQ(found(open_mpi).rank, 1);
  EXPECT_EQ(found(srun).name, "srun");
  EXPECT_EQ(found(srun).rank, 1);
  // A batch script is no step.
  EXPECT_EQ(found({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}).name, "");
  // Slurm's variables are there for an mpiexec within a job, too.
  EXPECT_EQ(found(with(mpich, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}})).name,
            "mpiexec of MPICH");
  EXPECT_EQ(found(with(mpich, {{"SLURM_PROCID", "0"}})).rank, 1);
}

TEST(Launcher, SeveralProcessesThatSeeOneAreAProblem) {
  const auto problem = [](const Variables& variables, int world_size) {
    return launcher_problem(world_size, "MPICH 4.0.2", found(variables));
  };
  for (const Variables& variables : {mpich, open_mpi, srun}) {
    EXPECT_NE(problem(variables, 1), "");
    EXPECT_EQ(problem(variables, 4), "");
  }
  EXPECT_NE(problem(open_mpi, 1)
                .find("mpiexec of Open MPI has started several "
                      "(OMPI_COMM_WORLD_SIZE is 4)"),
            std::string::npos)
      << problem(open_mpi, 1);
  EXPECT_NE(problem(open_mpi, 1).find("the mpiexec of MPICH 4.0.2"), std::string::npos);
  EXPECT_NE(problem(srun, 1).find("SLURM_STEP_NUM_TASKS is 4"), std::string::npos);
  EXPECT_NE(problem(srun, 1).find("--mpi=pmix"), std::string::npos) << problem(srun, 1);
  // A PMIx launcher says no size; a rank above 0 has others beside it.
  EXPECT_NE(problem({{"PMIX_RANK", "2"}}, 1), "");
}

TEST(Launcher, LibrariesAndTheirLaunchersAreOneFamily) {
  EXPECT_EQ(library_family("MPICH 4.0.2"), "MPICH");
  EXPECT_EQ(library_family("HYDRA build details:\n    Version: 4.0.2"), "MPICH");
  EXPECT_EQ(library_family("Intel(R) MPI Library 2021.9"), "MPICH");
  EXPECT_EQ(library_family("Open MPI v4.1.4"), "Open MPI");
  EXPECT_EQ(library_family("mpiexec (OpenRTE) 4.1.4"), "Open MPI");
  EXPECT_EQ(library_family("another"), "");
  EXPECT_EQ(found(mpich).library, library_family("MPICH 4.0.2"));
  EXPECT_EQ(found(open_mpi).library, library_family("Open MPI v4.1.4"));
  EXPECT_EQ(found(srun).library, "");
}

TEST(Launcher, OneProcessAloneIsNone) {
  const auto fine = [](const Variables& variables) {
    return launcher_problem(1, "MPICH 4.0.2", found(variables)).empty();
  };
  EXPECT_TRUE(fine({}));
  EXPECT_TRUE(fine({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"HYDI_CONTROL_FD", "7"}}));
  EXPECT_TRUE(fine({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_TRUE(fine({{"PMIX_RANK", "0"}}));
  // A shell that salloc -n 4 opened, a batch script, and a step of one task.
  EXPECT_TRUE(fine({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "4"}}));
  EXPECT_TRUE(fine({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}));
  EXPECT_TRUE(fine({{"SLURM_JOB_ID", "17"},
                    {"SLURM_NTASKS", "4"},
                    {"SLURM_PROCID", "0"},
                    {"SLURM_STEP_NUM_TASKS", "1"}}));
}

}  // namespace
}  // namespace ringworld
