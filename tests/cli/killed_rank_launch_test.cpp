// A rank that dies: the job ends, with an error, and leaves no process behind.
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

// Processes of the ringworld program whose command line holds `mark`; only those of `rank`, unless
// it is negative. Launchers tell their processes the rank in the environment.
std::vector<pid_t> ranks_running(const std::string& mark, int rank = -1) {
  std::string number("=");
  number.append(std::to_string(rank)).push_back('\0');
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const std::string command = content(entry.path() / "cmdline");
    const std::string environment = content(entry.path() / "environ");
    if (command.starts_with(RINGWORLD_PROGRAM) && command.find(mark) != std::string::npos &&
        (rank < 0 || environment.find("PMI_RANK" + number) != std::string::npos ||
         environment.find("OMPI_COMM_WORLD_RANK" + number) != std::string::npos)) {
      found.push_back(std::stoi(name));
    }
  }
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

TEST(KilledRank, EndsTheJobWithAnErrorAndLeavesNothingBehind) {
  const TemporaryDirectory directory;
  const std::string metrics = directory.path("metrics.jsonl");
  const std::string line =
      "timeout -k 5 60 " +
      launch_line(4, "train --data " + directory.write("data.txt", std::string(20'000, 'a')) + " " +
                         tiny_model + "--steps 1000000 --progress none --metrics " + metrics) +
      " > " + directory.path("output.txt") + " 2>&1";
  const pid_t job = fork();
  if (job == 0) {
    execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  ASSERT_TRUE(eventually(
      [&] {
        return std::filesystem::exists(metrics) &&
               content(metrics).find("\"step\":3,") != std::string::npos;
      },
      std::chrono::seconds(40)));
  const std::vector<pid_t> victim = ranks_running(metrics, 2);
  ASSERT_EQ(victim.size(), 1u);
  ASSERT_EQ(ranks_running(metrics).size(), 4u);
  kill(victim[0], SIGKILL);

  int status = 0;
  ASSERT_TRUE(
      eventually([&] { return waitpid(job, &status, WNOHANG) == job; }, std::chrono::seconds(10)));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0)
      << content(directory.path("output.txt"));
  EXPECT_TRUE(eventually([&] { return ranks_running(metrics).empty(); }, std::chrono::seconds(5)));
}

}  // namespace
}  // namespace ringworld
