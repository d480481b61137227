#include "cli/keeper.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "runtime/launcher.h"

namespace ringworld {

#ifdef __linux__
namespace {

// How long the other ranks have to say what they were waiting for: they notice when they wait for
// anybody, and then end the job, and this process with it.
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

// Ends this process as its rank was ended, which some launchers ask for to end a job.
[[noreturn]] void end_by(int signal) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  std::raise(signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  _exit(128 + signal);  // where it is none that ends a process
}

// Passes `signals` on until the rank ends.
[[noreturn]] void keep(pid_t rank_process, int rank, const sigset_t& signals) {
  int status = EXIT_FAILURE << 8;  // should the system not tell
  for (pid_t ended = 0; ended == 0;) {
    const int signal = sigwaitinfo(&signals, nullptr);
    if (signal > 0 && signal != SIGCHLD) {
      kill(rank_process, signal);
    }
    ended = waitpid(rank_process, &status, WNOHANG);
  }
  if (WIFEXITED(status)) {
    _exit(WEXITSTATUS(status));
  }
  const int cause = WTERMSIG(status);
  const std::string text = fmt::format(
      "ringworld: rank {} was killed by signal {} ({}){}\n", rank, cause, strsignal(cause),
      cause == SIGKILL ? ": by somebody, or by the system because memory ran out" : "");
  // At once, so that lines of several keepers do not mix; where it cannot be written, nobody reads.
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
  std::this_thread::sleep_for(patience);
  end_by(cause);
}

}  // namespace
#endif

void run_under_keeper([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#ifdef __linux__
  const Launcher& launcher = find_launcher();
  const char* variable = std::getenv(keeper_variable);
  const std::string said = variable == nullptr ? "" : variable;
  if (said == "0" || said == std::to_string(getppid()) || launcher.several.empty() ||
      !launcher.rank || is_traced()) {
    return;
  }
  // What ends this process ends the rank, too, which is as quick as without a keeper.
  sigset_t passed_on;
  sigfillset(&passed_on);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    sigdelset(&passed_on, signal);
  }
  sigset_t before;
  sigprocmask(SIG_SETMASK, &passed_on, &before);
  std::signal(SIGCHLD, SIG_DFL);  // who ignores it is not told of it
  const pid_t keeper = getpid();
  setenv(keeper_variable, std::to_string(keeper).c_str(), 1);
  const pid_t child = fork();
  if (child > 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // without a launcher nobody would end it
    rename_this_process(argc, argv, *launcher.rank);
    keep(child, *launcher.rank, passed_on);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper) {  // it ended before that
      _exit(EXIT_FAILURE);
    }
  }
#endif
}

}  // namespace ringworld
