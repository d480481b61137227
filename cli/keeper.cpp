#include "cli/keeper.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include <fmt/format.h>

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "runtime/launcher.h"

namespace ringworld {

#ifdef __linux__
namespace {

// How long the other ranks have to say what they were waiting for: they notice when they wait for
// the dead one, or for one that does, and then end the job, and this process with it.
constexpr std::chrono::seconds patience{10};

bool is_traced() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("TracerPid:")) {
      return line.find_first_of("123456789") != std::string::npos;
    }
  }
  return false;
}

// Who looks for ranks by the name of the program or by their options is not to find keepers.
void rename_this_process(int argc, char** argv, int rank) {
  prctl(PR_SET_NAME, "rank-keeper");
  if (argc == 0) {
    return;
  }
  const char* end = argv[argc - 1] + std::strlen(argv[argc - 1]);
  const auto room = static_cast<std::size_t>(end - argv[0]);
  const std::string name = fmt::format("rank-keeper {}", rank).substr(0, room);
  std::memset(argv[0], 0, room);
  std::memcpy(argv[0], name.data(), name.size());
}

[[noreturn]] void keep(pid_t rank_process, int rank, const sigset_t& signals) {
  bool told_to_end = false;
  for (;;) {
    const int signal = sigwaitinfo(&signals, nullptr);
    if (signal != SIGCHLD) {
      told_to_end = told_to_end || signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
                    signal == SIGQUIT;
      if (signal > 0) {
        kill(rank_process, signal);
      }
      continue;
    }
    int status = 0;
    if (waitpid(rank_process, &status, WNOHANG) != rank_process) {
      continue;  // it was stopped, or goes on
    }
    if (WIFEXITED(status)) {
      _exit(WEXITSTATUS(status));
    }
    const int cause = WTERMSIG(status);
    if (!told_to_end) {
      fmt::print(stderr, "ringworld: rank {} was killed by signal {} ({}){}\n", rank, cause,
                 strsignal(cause),
                 cause == SIGKILL ? ": by somebody, or by the system because memory ran out" : "");
      sigset_t ends;
      sigemptyset(&ends);
      for (const int end : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        sigaddset(&ends, end);
      }
      const timespec limit{.tv_sec = patience.count(), .tv_nsec = 0};
      sigtimedwait(&ends, nullptr, &limit);
    }
    _exit(128 + cause);
  }
}

}  // namespace
#endif

void run_under_keeper([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#ifdef __linux__
  const Launcher& launcher = find_launcher();
  if (std::getenv(keeper_variable) != nullptr || launcher.several.empty() || !launcher.rank ||
      is_traced()) {
    return;
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t keeper = getpid();
  setenv(keeper_variable, "1", 1);
  const pid_t child = fork();
  if (child <= 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != keeper) {  // it ended before that
        _exit(EXIT_FAILURE);
      }
    }
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // without a launcher nobody would end it
  rename_this_process(argc, argv, *launcher.rank);
  keep(child, *launcher.rank, all);
#endif
}

}  // namespace ringworld
