// Errors that a user can cause, each with the exit code the process ends with.
//
// A message says what was asked, what was found and what to do. The command line prints it once,
// prefixed with the rank where that matters, and every rank ends with the code.
#pragma once

#include <stdexcept>
#include <string>

namespace ringworld {

enum class ExitCode : int {
  ok = 0,
  failed = 1,         // a check did not hold (verify), or an internal error
  usage = 2,          // an option, a key or a combination that cannot be run
  data = 3,           // a data file that is missing, too short or malformed; an output not writable
  out_of_memory = 4,  // a device, host or file budget that is too small
  communication = 5,  // a peer that is missing, dead or disagrees
  numerical = 6,      // a loss or gradient that is not finite
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};

class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
};

class OutOfDeviceMemory : public Error {
 public:
  explicit OutOfDeviceMemory(const std::string& message)
      : Error(ExitCode::out_of_memory, message) {}
};

class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message)
      : Error(ExitCode::communication, message) {}
};

class NumericalError : public Error {
 public:
  explicit NumericalError(const std::string& message) : Error(ExitCode::numerical, message) {}
};

}  // namespace ringworld
