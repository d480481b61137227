// The ringworld command under mpiexec, for tests. RINGWORLD_LAUNCH and RINGWORLD_PROGRAM come from
// CMake.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace ringworld {

inline std::string launch_line(int ranks, const std::string& arguments) {
  return std::string(RINGWORLD_LAUNCH) + " -n " + std::to_string(ranks) + " " + RINGWORLD_PROGRAM +
         " " + arguments;
}

inline CommandResult launch(int ranks, const std::string& arguments, int seconds = 60) {
  return run_command(launch_line(ranks, arguments), seconds);
}

// Without mpiexec.
inline CommandResult run_alone(const std::string& arguments, int seconds = 60) {
  return run_command(std::string(RINGWORLD_PROGRAM) + " " + arguments, seconds);
}

// The objects of a file of JSON lines.
inline std::vector<nlohmann::json> read_json_lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

// A model that is small enough for eight ranks on two cores.
inline const std::string tiny_model =
    "--layers 2 --heads 2 --width 16 --context 16 --sequence-length 16 ";

}  // namespace ringworld
