// A rank that dies: the job ends, with an error, and leaves no process behind.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Processes whose command line begins with `program` and holds `mark`.
std::vector<pid_t> running(const std::string& program, const std::string& mark) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const std::string command = content(entry.path() / "cmdline");
    if (command.starts_with(program) && command.find(mark) != std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

// Of the ringworld program; only those of `rank`, unless it is negative. Launchers tell their
// processes the rank in the environment.
std::vector<pid_t> ranks_running(const std::string& mark, int rank = -1) {
  std::string number("=");
  number.append(std::to_string(rank)).push_back('\0');
  std::vector<pid_t> found = running(RINGWORLD_PROGRAM, mark);
  std::erase_if(found, [&](pid_t process) {
    const std::string environment = content("/proc/" + std::to_string(process) + "/environ");
    return rank >= 0 && environment.find("PMI_RANK" + number) == std::string::npos &&
           environment.find("OMPI_COMM_WORLD_RANK" + number) == std::string::npos;
  });
  return found;
}

// Polls until the condition holds; false when it does not within the time.
template <typename Condition>
bool eventually(Condition condition, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

// A run of 4 ranks, which is under way when this returns.
struct Job {
  const TemporaryDirectory directory;
  const std::string mark = directory.path("written.json");  // in its command line
  const std::string printed = directory.path("output.txt");
  pid_t launcher = -1;

  // Under way when there is `text` in `file`.
  void start(const std::string& arguments, const std::string& file, const std::string& text) {
    launch_ranks(arguments);
    EXPECT_TRUE(eventually([&] { return content(file).find(text) != std::string::npos; },
                           std::chrono::seconds(40)));
    EXPECT_EQ(ranks_running(mark).size(), 4u);
  }

  void launch_ranks(const std::string& arguments) {
    const std::string line =
        "timeout -k 5 60 " + launch_line(4, arguments) + " > " + printed + " 2>&1";
    launcher = fork();
    if (launcher == 0) {
      execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
  }

  void signal_rank(int rank, int signal) const {
    const std::vector<pid_t> victim = ranks_running(mark, rank);
    ASSERT_EQ(victim.size(), 1u);
    kill(victim[0], signal);
  }

  void signal_launcher(int signal) const {
    const std::string line = RINGWORLD_LAUNCH;
    const std::vector<pid_t> launchers = running(line.substr(0, line.find(' ')), mark);
    ASSERT_EQ(launchers.size(), 1u);
    kill(launchers[0], signal);
  }

  // The launcher ends in time, not with 0, and no process is left.
  void expect_end(std::chrono::seconds limit) const {
    int status = 0;
    ASSERT_TRUE(eventually([&] { return waitpid(launcher, &status, WNOHANG) == launcher; }, limit));
    EXPECT_NE(status, 0) << output();
    EXPECT_TRUE(eventually([&] { return ranks_running(mark).empty(); }, std::chrono::seconds(5)));
  }

  std::string output() const { return content(printed); }
};

// In its third step.
struct Training : Job {
  explicit Training(const std::string& options) {
    start("train --data " + directory.write("data.txt", std::string(20'000, 'a')) + " " +
              tiny_model + "--steps 1000000 --progress none --metrics " + mark + " " + options,
          mark, "\"step\":3,");
  }
};

// In calls of the MPI library.
struct LibraryCalls : Job {
  LibraryCalls() {
    start("bench all_reduce --algorithms mpi --sizes 8 --iterations 1000000 --json " + mark,
          printed, "#wrong");
  }
};

TEST(KilledRank, EndsTheJobWithAnErrorAndLeavesNothingBehind) {
  for (const std::string transport : {"shared", "mpi"}) {
    const Training job("--transport " + transport);
    job.signal_rank(2, SIGKILL);
    job.expect_end(std::chrono::seconds(15));
    const std::string output = job.output();
    EXPECT_NE(output.find("ringworld: rank 2 was killed by signal 9"), std::string::npos) << output;
  }
}

// When the others wait for it inside MPI_Init.
TEST(KilledRank, EndsTheJobEvenBeforeItHasStarted) {
  Job job;
  job.launch_ranks("bench all_reduce --sizes 8 --iterations 1000000 --json " + job.mark);
  ASSERT_TRUE(
      eventually([&] { return !ranks_running(job.mark, 2).empty(); }, std::chrono::seconds(20)));
  for (const pid_t process : ranks_running(job.mark, 2)) {
    kill(process, SIGKILL);
  }
  job.expect_end(std::chrono::seconds(25));
}

// Long before the timeout. Over MPI, the library itself may end a rank that sends to a dead one.
TEST(KilledRank, IsSaidToHaveEndedByTheOthers) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    const Training job("--transport shared");
    job.signal_rank(2, signal);
    job.expect_end(std::chrono::seconds(15));
    const std::string output = job.output();
    EXPECT_NE(output.find("the process of rank 2 has ended"), std::string::npos) << output;
    EXPECT_NE(output.find("ended: rank 2, in "), std::string::npos) << output;
    EXPECT_NE(output.find("last finished by rank"), std::string::npos) << output;
    // What killed it, and what the others waited for.
    EXPECT_EQ(occurrences(output, "ringworld: "), 2u) << output;
  }
}

// Inside a call of the MPI library, which cannot be interrupted, too.
TEST(KilledRank, IsNoticedInsideTheLibrary) {
  const LibraryCalls job;
  job.signal_rank(2, SIGKILL);
  job.expect_end(std::chrono::seconds(15));
  EXPECT_NE(job.output().find("the process of rank 2 has ended"), std::string::npos)
      << job.output();
}

TEST(KilledLauncher, TakesItsRanksWithItAndSaysNothingOfThem) {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT}) {
    const Training job("");
    job.signal_launcher(signal);
    job.expect_end(std::chrono::seconds(10));
    EXPECT_EQ(job.output().find("was killed"), std::string::npos) << job.output();
  }
}

// CPU time that a process has used, in seconds; 0 when it is gone.
double cpu_seconds(pid_t process) {
  std::istringstream fields(content("/proc/" + std::to_string(process) + "/stat"));
  std::string field;
  double ticks = 0;
  for (int i = 1; i <= 15 && fields >> field; ++i) {
    ticks += i >= 14 ? std::stod(field) : 0;  // user and system time; the name has no blanks
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Whoever waits for a rank that sleeps costs next to nothing.
TEST(StoppedRank, IsWaitedForAsleep) {
  for (const std::string transport : {"shared", "mpi"}) {
    const Training job("--timeout 5 --transport " + transport);
    job.signal_rank(2, SIGSTOP);
    const pid_t waiting = ranks_running(job.mark, 0).at(0);
    const double before = cpu_seconds(waiting);
    double after = before;
    int status = 0;
    EXPECT_TRUE(eventually(
        [&] {
          after = std::max(after, cpu_seconds(waiting));
          return waitpid(job.launcher, &status, WNOHANG) == job.launcher;
        },
        std::chrono::seconds(20)));
    EXPECT_LT(after - before, 0.5) << transport;
  }
}

// One message names the rank that is missing, whatever way messages travel.
TEST(StoppedRank, IsNamedWithinTheTimeout) {
  for (const std::string transport : {"shared", "mpi"}) {
    const Training job("--timeout 3 --transport " + transport);
    job.signal_rank(2, SIGSTOP);
    job.expect_end(std::chrono::seconds(15));
    const std::string output = job.output();
    EXPECT_NE(output.find("missing: rank 2"), std::string::npos) << output;
    EXPECT_NE(output.find("last finished by rank"), std::string::npos) << output;
    EXPECT_EQ(output.find("ringworld: "), output.rfind("ringworld: ")) << output;
  }
}

}  // namespace
}  // namespace ringworld
