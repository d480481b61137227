// The ringworld command: every rank parses the same command line and runs the same subcommand. What
// goes wrong is said once, and every rank ends with the error's exit code.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>
#include <thread>
#include <variant>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/keeper.h"
#include "cli/options.h"
#include "runtime/backend.h"
#include "runtime/error.h"
#include "runtime/transport.h"

namespace ringworld {
namespace {

// How long a failing rank waits to hear whether the others fail too, before it ends the job.
constexpr std::chrono::milliseconds patience{1000};
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

// A failure as one rank tells it to the others.
std::string told(const Failure& failure) {
  return fmt::format("{} {}", static_cast<int>(failure.code), failure.message);
}

Failure heard(const std::string& text) {
  const std::size_t blank = text.find(' ');
  return {static_cast<ExitCode>(std::stoi(text.substr(0, blank))), text.substr(blank + 1)};
}

// What is said of the ranks' failures: each cause once, with its rank unless all have the same.
// That ranks lost one another is said once, by the first to whom it happened, and only where it is
// not the consequence of something else; and ranks whose memory is exhausted have one cause, the
// first's, however much each held.
std::vector<std::string> report(const std::vector<std::optional<std::string>>& messages) {
  std::vector<std::pair<std::size_t, Failure>> failures;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    if (messages[rank]) {
      failures.emplace_back(rank, heard(*messages[rank]));
    }
  }
  const bool has_cause = std::ranges::any_of(
      failures, [](const auto& failure) { return failure.second.code != ExitCode::communication; });
  const bool alike =
      failures.size() == messages.size() && std::ranges::all_of(failures, [&](const auto& failure) {
        return failure.second.message == failures.front().second.message;
      });
  std::vector<std::string> lines;
  for (const auto& [rank, failure] : failures) {
    const bool lost = failure.code == ExitCode::communication;
    const bool full = failure.code == ExitCode::out_of_memory;
    if ((lost && has_cause) || ((lost || full || alike) && !lines.empty())) {
      continue;
    }
    lines.push_back(alike ? failure.message : fmt::format("rank {}: {}", rank, failure.message));
  }
  return lines;
}

// Called by a rank whose command failed. When every rank failed the job ends in order; otherwise
// the first of those that failed speaks for them, and the job is ended for all.
int end_with(const Failure& failure, Transport& transport) {
  const std::vector<std::optional<std::string>> messages =
      gather_mpi_failures(told(failure), patience);
  const auto first = std::ranges::find_if(messages, [](const auto& m) { return m.has_value(); });
  const bool speaks = first - messages.begin() == transport.rank();
  if (speaks) {
    for (const std::string& line : report(messages)) {
      print(line);
    }
  }
  if (!std::ranges::all_of(messages, [](const auto& m) { return m.has_value(); })) {
    // The speaker is to be heard first.
    std::this_thread::sleep_for(speaks ? time_to_forward : 4 * time_to_forward);
    abort_mpi_job(static_cast<int>(failure.code));
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
  if (const auto* pipeline = std::get_if<ShowPipelineOptions>(&command)) {
    return run_show_pipeline(*pipeline, transport);
  }
  if (const auto* shards = std::get_if<ShowShardsOptions>(&command)) {
    return run_show_shards(*shards, transport);
  }
  if (const auto* bench = std::get_if<BenchOptions>(&command)) {
    return run_bench(*bench, transport);
  }
  if (const auto* compare = std::get_if<CompareOptions>(&command)) {
    return run_compare(*compare, transport);
  }
  if (const auto* capabilities = std::get_if<CapabilitiesOptions>(&command)) {
    return run_capabilities(*capabilities, transport);
  }
  if (const auto* doctor = std::get_if<DoctorOptions>(&command)) {
    return run_doctor(*doctor, transport);
  }
  if (const auto* memory = std::get_if<PlanMemoryOptions>(&command)) {
    return run_plan_memory(*memory, transport);
  }
  if (const auto* step = std::get_if<PlanStepOptions>(&command)) {
    return run_plan_step(*step, transport);
  }
  if (const auto* cost = std::get_if<PlanCostOptions>(&command)) {
    return run_plan_cost(*cost, transport);
  }
  if (const auto* search = std::get_if<PlanSearchOptions>(&command)) {
    return run_plan_search(*search, transport);
  }
  if (const auto* validate = std::get_if<PlanValidateOptions>(&command)) {
    return run_plan_validate(*validate, transport);
  }
  if (const auto* lesson = std::get_if<LessonOptions>(&command)) {
    return run_lesson(*lesson, transport);
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

// What the libraries below read from the environment, they read when they are loaded. So the
// program starts itself once more with what they need here, unless the user has set that.
static void restart_in_fast_environment(char** argv) {
#ifdef __linux__
  bool changed = false;
  for (const auto& [name, value] : ringworld::cpu_backend_environment()) {
    if (std::getenv(name.c_str()) == nullptr) {
      changed = ::setenv(name.c_str(), value.c_str(), 1) == 0 || changed;
    }
  }
  if (changed) {
    // By its own name, which is what processes are listed under. Where that cannot be, it goes on
    // as it is.
    std::error_code unknown;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unknown);
    ::execv(unknown ? "/proc/self/exe" : program.c_str(), argv);
  }
#endif
}

int main(int argc, char** argv) {
  // A file that may not grow is an error of the call that would make it grow.
  std::signal(SIGXFSZ, SIG_IGN);
  ringworld::run_under_keeper(argc, argv);
  restart_in_fast_environment(argv);
  return ringworld::main_on_rank(argc, argv);
}
