// ringworld doctor and capabilities as a user runs them.
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/cli/launch.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

using Json = nlohmann::json;

CommandResult alone(const std::string& arguments, const std::string& environment = "") {
  return run_command("env " + environment + " " + RINGWORLD_PROGRAM + " " + arguments, 60);
}

Json finding(const Json& report, const std::string& name) {
  for (const Json& one : report["findings"]) {
    if (one["name"] == name) {
      return one;
    }
  }
  ADD_FAILURE() << "no finding " << name << " in " << report.dump(2);
  return {};
}

TEST(Doctor, LooksAtEverythingOnce) {
  const CommandResult result = launch(3, "doctor --json -");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const Json report = parsed(result);
  EXPECT_EQ(report["schema"], "ringworld.doctor");
  EXPECT_EQ(report["ranks"], 3);
  std::map<std::string, int> names;
  std::string worst = "ok";
  for (const Json& one : report["findings"]) {
    ++names[one["name"]];
    EXPECT_TRUE(one["verdict"] == "ok" || one["verdict"] == "warn") << one;
    EXPECT_NE(one["found"], "") << one;
    EXPECT_TRUE(one["verdict"] == "ok" || one["remedy"] != "") << one;
    worst = one["verdict"] == "warn" ? "warn" : worst;
  }
  EXPECT_EQ(report["verdict"], worst);
  std::set<std::string> expected = {"program",    "MPI",       "launcher",      "ranks",
                                    "CPUs",       "memory",    "mapped memory", "copied memory",
                                    "huge pages", "host name", "clock",         "threads"};
#ifdef __linux__
  expected.insert("/dev/shm");
#endif
  for (const std::string& name : expected) {
    EXPECT_EQ(names[name], 1) << name;
  }
  EXPECT_EQ(names.size(), expected.size());
  EXPECT_NE(finding(report, "launcher")["found"].get<std::string>().find("mpiexec of"),
            std::string::npos);
  EXPECT_EQ(finding(report, "ranks")["found"].get<std::string>().find("3 ranks: 3 on "), 0u);
}

TEST(Doctor, MoreRanksThanCpusAreSaid) {
  const CommandResult one_cpu =
      run_command("taskset -c 0 " + launch_line(3, "doctor --json -"), 60);
  EXPECT_EQ(one_cpu.exit_code, 0) << one_cpu.output;
  const Json cpus = finding(parsed(one_cpu), "CPUs");
  EXPECT_EQ(cpus["verdict"], "warn");
  EXPECT_EQ(cpus["found"].get<std::string>().find("3 ranks on 1 CPU"), 0u) << cpus;
}

TEST(Doctor, ThePrintedLinesFitATerminal) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("doctor.json");
  const CommandResult result = launch(2, "doctor --json " + path);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "\nok    MPI "), 1u) << result.output;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
  }
  std::ifstream file(path);
  EXPECT_EQ(Json::parse(file)["ranks"], 2);
}

TEST(Doctor, AloneItIsOneRank) {
  const CommandResult result = alone("doctor --json -");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const Json report = parsed(result);
  EXPECT_EQ(report["ranks"], 1);
  EXPECT_NE(finding(report, "ranks")["found"].get<std::string>().find("1 rank: "),
            std::string::npos);
  const std::string launcher = finding(report, "launcher")["found"];
  EXPECT_TRUE(launcher.find("alone") != std::string::npos ||
              launcher.find("in the PATH belongs to") != std::string::npos)
      << launcher;
}

// What the launcher of another library sets: of its processes each is alone.
std::string foreign_launcher(int rank) {
  const Json report = parsed(alone("doctor --json -"));
  const std::string library = finding(report, "MPI")["found"];
  return library.starts_with("Open MPI")
             ? "PMI_SIZE=2 PMI_RANK=" + std::to_string(rank)
             : "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
}

TEST(Doctor, ALauncherOfAnotherLibraryIsFoundByTheFirstProcess) {
  const CommandResult first = alone("doctor --json -", foreign_launcher(0));
  const Json report = parsed(first, /*exit_code=*/1);
  EXPECT_EQ(report["verdict"], "FAIL");
  const std::string found = finding(report, "MPI")["found"];
  EXPECT_NE(found.find("SIZE is 2"), std::string::npos) << found;
  EXPECT_NE(found.find("another MPI library"), std::string::npos) << found;
  EXPECT_EQ(finding(report, "mapped memory")["host"], finding(report, "CPUs")["host"]);

  const CommandResult second = alone("doctor", foreign_launcher(1));
  EXPECT_EQ(second.exit_code, 0) << second.output;
  EXPECT_EQ(second.output, "");
}

TEST(Doctor, EveryCommandRefusesALauncherOfAnotherLibrary) {
  for (const char* arguments : {"show barrier", "call barrier", "verify"}) {
    const CommandResult result = alone(arguments, foreign_launcher(1));
    EXPECT_EQ(result.exit_code, 5) << result.output;
    EXPECT_EQ(occurrences(result.output, "ringworld: "), 1u) << result.output;
    EXPECT_NE(result.output.find("another MPI library"), std::string::npos) << result.output;
  }
}

TEST(Doctor, BadInputIsRefusedOnce) {
  for (const std::string& environment : {std::string(), foreign_launcher(0)}) {
    const CommandResult result = alone("doctor --jsn x", environment);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_NE(result.output.find("--json"), std::string::npos) << result.output;
    EXPECT_EQ(occurrences(result.output, "ringworld: "), 1u) << result.output;
  }
  const CommandResult unwritable = launch(2, "doctor --json /no/such/place.json");
  EXPECT_EQ(unwritable.exit_code, 3) << unwritable.output;
  EXPECT_NE(unwritable.output.find("/no/such/place.json"), std::string::npos);
}

TEST(Capabilities, TheMatrixIsPrintedOnce) {
  const CommandResult result = launch(2, "capabilities");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "\nall_reduce      ring "), 1u) << result.output;
  EXPECT_NE(result.output.find("bf16"), std::string::npos);
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Capabilities, EveryCellIsInTheJson) {
  const Json report = parsed(alone("capabilities --json -"));
  std::map<std::string, int> cells;  // by operation and algorithm
  std::map<std::string, std::set<std::string>> kinds;
  for (const Json& cell : report["cells"]) {
    const std::string name =
        cell["operation"].get<std::string>() + " " + cell["algorithm"].get<std::string>();
    ++cells[name];
    kinds[name].insert(cell["dtype"].get<std::string>() + cell["op"].dump());
    EXPECT_EQ(cell["supported"].get<bool>(), cell["reason"].is_null()) << cell;
  }
  EXPECT_EQ(cells["all_reduce ring"], 28);  // 7 number formats, 4 reductions
  EXPECT_EQ(kinds["all_reduce ring"].size(), 28u);
  EXPECT_EQ(cells["broadcast tree"], 7);
  EXPECT_EQ(kinds["broadcast tree"].size(), 7u);
}

// Every strategy with every kind of mesh and every pipeline schedule; what is refused says why.
TEST(Capabilities, MeshesAreThereForEveryStrategy) {
  const Json report = parsed(alone("capabilities --json -"));
  std::map<std::string, std::map<std::string, Json>> cells;  // by option and strategy
  for (const Json& cell : report["training"]) {
    cells[cell["option"]][cell["strategy"]] = cell;
  }
  for (const char* option : {"--mesh dp=N,tp=N", "--mesh dp=N,tp=N --sequence-parallel",
                             "--mesh dp=N,pp=N --pipeline-schedule fill-drain",
                             "--mesh dp=N,pp=N --pipeline-schedule 1f1b",
                             "--mesh dp=N,pp=N --pipeline-schedule interleaved-1f1b",
                             "--mesh dp=N,pp=N --pipeline-schedule zb-h1",
                             "--mesh dp=N,pp=N --pipeline-schedule zb-h2"}) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      const Json& cell = cells[option][strategy];
      ASSERT_FALSE(cell.is_null()) << option << " " << strategy;
      const bool gives_away = std::string(strategy) == "zero2" || std::string(strategy) == "fsdp";
      const bool splits = std::string(option).find("zb-") != std::string::npos;
      EXPECT_EQ(cell["supported"], !(gives_away && splits)) << cell;
      if (gives_away && splits) {
        EXPECT_NE(cell["reason"].get<std::string>().find("--reduce-gradients once"),
                  std::string::npos)
            << cell;
      }
    }
  }
}

}  // namespace
}  // namespace ringworld
