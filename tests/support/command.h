// Running a command as a user would, with a time limit, and looking at what it printed.
#pragma once

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <sys/wait.h>

namespace ringworld {

struct CommandResult {
  int exit_code = 0;   // 124 when it ran past its time
  std::string output;  // standard output and error, as they came
};

// Through the shell. The time limit ends the whole job: mpiexec passes the signal on.
inline CommandResult run_command(const std::string& command, int seconds = 60) {
  const std::string limited = "timeout -k 5 " + std::to_string(seconds) + " " + command + " 2>&1";
  std::FILE* pipe = ::popen(limited.c_str(), "r");
  if (pipe == nullptr) {
    throw std::runtime_error("cannot start: " + limited);
  }
  CommandResult result;
  std::array<char, 4096> buffer;
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace ringworld
