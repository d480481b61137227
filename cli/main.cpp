// The ringworld command: every rank parses the same command line and runs the same subcommand. What
// goes wrong is said once, and every rank ends with the error's exit code.
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <thread>
#include <variant>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "runtime/error.h"
#include "runtime/transport.h"

namespace ringworld {
namespace {

// How long a failing rank waits to hear whether the others fail too, before it ends the job.
constexpr std::chrono::milliseconds patience{2000};
// What mpiexec has not passed on when a job is aborted is lost; this is its time to do so.
constexpr std::chrono::milliseconds time_to_forward{500};

struct Failure {
  ExitCode code = ExitCode::failed;
  std::string message;
};

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {
        ExitCode::out_of_memory,
        "this machine's memory is exhausted; run fewer ranks, or a smaller model, micro-batch or "
        "sequence"};
  } catch (const std::exception& error) {
    return {ExitCode::failed, fmt::format("internal error: {}", error.what())};
  }
}

void print(const std::string& message) {
  std::cerr << "ringworld: " << message << std::endl;
}

// Called by a rank whose command failed. When every rank failed alike, as with a wrong option, the
// message is printed once and the job ends in order; a rank that fails alone names itself and ends
// the job for all.
int end_with(const Failure& failure, Transport& transport) {
  const std::vector<std::string> messages = gather_mpi_failures(failure.message, patience);
  if (messages.empty()) {
    print(transport.world_size() > 1 ? fmt::format("rank {}: {}", transport.rank(), failure.message)
                                     : failure.message);
    std::this_thread::sleep_for(time_to_forward);
    abort_mpi_job(static_cast<int>(failure.code));
  }
  if (transport.rank() == 0) {
    for (std::size_t rank = 0; rank < messages.size(); ++rank) {
      if (messages[rank] != messages[0]) {
        print(fmt::format("rank {}: {}", rank, messages[rank]));
      } else if (rank == 0) {
        print(messages[0]);
      }
    }
  }
  return static_cast<int>(failure.code);
}

ExitCode run(const std::vector<std::string>& arguments, Transport& transport) {
  const Command command = parse_command_line(arguments);
  if (const auto* text = std::get_if<Text>(&command)) {
    if (transport.rank() == 0) {
      std::cout << text->text << std::flush;
    }
    return ExitCode::ok;
  }
  if (const auto* train = std::get_if<TrainOptions>(&command)) {
    return run_train(*train, transport);
  }
  if (const auto* verify = std::get_if<VerifyOptions>(&command)) {
    return run_verify(*verify, transport);
  }
  if (const auto* show = std::get_if<ShowOptions>(&command)) {
    return run_show(*show, transport);
  }
  if (const auto* bench = std::get_if<BenchOptions>(&command)) {
    return run_bench(*bench, transport);
  }
  if (const auto* capabilities = std::get_if<CapabilitiesOptions>(&command)) {
    return run_capabilities(*capabilities, transport);
  }
  if (const auto* doctor = std::get_if<DoctorOptions>(&command)) {
    return run_doctor(*doctor, transport);
  }
  return run_call(std::get<CallOptions>(command), transport);
}

// Where MPI does not start, doctor still says what it finds.
int end_without_mpi(const std::vector<std::string>& arguments, const Failure& failure) {
  if (!arguments.empty() && arguments.front() == "doctor") {
    try {
      const Command command = parse_command_line(arguments);
      if (const auto* doctor = std::get_if<DoctorOptions>(&command)) {
        return static_cast<int>(run_doctor(*doctor, failure.message));
      }
    } catch (...) {
      const Failure own = current_failure();
      print(own.message);
      return static_cast<int>(own.code);
    }
  }
  print(failure.message);
  return static_cast<int>(failure.code);
}

int main_on_rank(int argc, char** argv) {
  std::unique_ptr<Transport> transport;
  try {
    transport = make_mpi_transport(&argc, &argv);
  } catch (...) {
    return end_without_mpi({argv + 1, argv + argc}, current_failure());
  }
  try {
    const ExitCode code = run({argv + 1, argv + argc}, *transport);
    if (!(std::cout << std::flush)) {
      throw DataError("what was printed could not be written: standard output is closed or full");
    }
    return static_cast<int>(code);
  } catch (...) {
    const int code = end_with(current_failure(), *transport);
    transport.reset();
    abort_mpi_job(code);
  }
}

}  // namespace
}  // namespace ringworld

// The OpenMP runtime spins at its barriers unless it is told otherwise when it is loaded, and with
// more threads at work than cores that costs time slices: a rank then takes tens of times longer.
// So the program starts itself once more with the waiting that suits shared machines.
static void wait_passively(char** argv) {
#ifdef __linux__
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
    ::execv("/proc/self/exe", argv);  // where that cannot be, it goes on as it is
  }
#endif
}

int main(int argc, char** argv) {
  wait_passively(argv);
  return ringworld::main_on_rank(argc, argv);
}
