// The ringworld command under mpiexec, for tests. RINGWORLD_LAUNCH and RINGWORLD_PROGRAM come from
// CMake.
#pragma once

#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/text.h"

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

// What the run printed holds all of these.
inline void expect_facts(const CommandResult& result,
                         std::initializer_list<std::string_view> facts) {
  for (const std::string_view fact : facts) {
    EXPECT_NE(result.output.find(fact), std::string::npos) << "no \"" << fact << "\" in:\n"
                                                           << result.output;
  }
}

// And it ended so.
inline void expect_facts(const CommandResult& result, int exit_code,
                         std::initializer_list<std::string_view> facts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.output;
  expect_facts(result, facts);
}

// The JSON that the run printed; an empty object when it is none.
inline nlohmann::json parsed(const CommandResult& result, int exit_code = 0) {
  nlohmann::json json = nlohmann::json::parse(result.output, nullptr, false);
  EXPECT_EQ(result.exit_code, exit_code) << result.output;
  EXPECT_FALSE(json.is_discarded()) << result.output;
  return json.is_discarded() ? nlohmann::json::object() : json;
}

inline std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
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
