// ringworld doctor: whether MPI, processors, memory and the host suit it, and what to do where not.
//
// Every rank says what it is; the first rank of each machine looks at the machine; rank 0 prints
// all of it.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/doctor_checks.h"
#include "cli/help_formatter.h"
#include "cli/json_file.h"
#include "cli/rank.h"
#include "runtime/launcher.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds look_up_limit{2000};

// Findings of one machine; without a name those of the whole job.
struct Section {
  std::string host = {};
  std::vector<Finding> findings = {};
};

// --- What is found -------------------------------------------------------------------------------

std::string program() {
  return fmt::format("ringworld {}", RINGWORLD_VERSION);
}

Finding check_program() {
  Finding finding{.name = "program", .found = program()};
#if defined(__clang__)
  finding.found += fmt::format(", built by Clang {}.{}.{}", __clang_major__, __clang_minor__,
                               __clang_patchlevel__);
#elif defined(__GNUC__)
  finding.found += fmt::format(", built by GCC {}", __VERSION__);
#endif
#ifndef NDEBUG
  finding.verdict = Verdict::warn;
  finding.found += " with assertions: timings mean little";
  finding.remedy = "to measure, build the release preset";
#endif
  return finding;
}

RankFacts own_facts(const std::string& library) {
  return {
      .program = program(), .library = library, .host = own_host_name(), .cpus = cpu_affinity()};
}

// This machine, seen by one of its ranks, which are `ranks`.
std::vector<Finding> look_at_machine(std::span<const RankFacts> ranks) {
  const int count = static_cast<int>(ranks.size());
  const CgroupLimits limits = cgroup_limits();
  const PeerMemory peer = try_peer_memory();
  std::vector<Finding> findings = {
      check_cpus(ranks, hardware_cpus(), limits.cpus, cpu_model()),
      check_memory(machine_memory(), limits, count),
#ifdef __linux__
      check_shared_files(space_of("/dev/shm")),
#endif
      check_mapping(peer.mapping),
      check_copying(peer.copying),
      check_huge_pages(shared_huge_pages()),
      check_host_name(look_up_host(own_host_name(), look_up_limit)),
      check_clock(measure_clock()),
      check_threads([](const char* name) { return std::getenv(name); }, count),
  };
  return findings;
}

// --- Between ranks -------------------------------------------------------------------------------

Json json_of(const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& finding : findings) {
    json.push_back({{"name", finding.name},
                    {"verdict", name_of(finding.verdict)},
                    {"found", finding.found},
                    {"remedy", finding.remedy}});
  }
  return json;
}

std::vector<Finding> findings_of(const Json& json) {
  std::vector<Finding> findings;
  for (const Json& one : json) {
    Finding finding{.name = one["name"], .found = one["found"], .remedy = one["remedy"]};
    for (const Verdict verdict : {Verdict::warn, Verdict::fail}) {
      finding.verdict = one["verdict"] == name_of(verdict) ? verdict : finding.verdict;
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

Json json_of(const RankFacts& facts) {
  return {{"program", facts.program},
          {"library", facts.library},
          {"host", facts.host},
          {"cpus", facts.cpus}};
}

RankFacts facts_of(const Json& json) {
  return {.program = json["program"],
          .library = json["library"],
          .host = json["host"],
          .cpus = json["cpus"].get<std::vector<int>>()};
}

// Every rank's, on every rank.
std::vector<Json> gather(const Json& own, Communicator& communicator) {
  const std::string text = own.dump(-1, ' ', false, Json::error_handler_t::replace);
  Backend& backend = communicator.backend();
  const auto rank = static_cast<std::size_t>(communicator.rank());
  Communicator::Counts counts(static_cast<std::size_t>(communicator.world_size()));
  counts[rank] = static_cast<std::int64_t>(text.size());
  const Tensor lengths =
      backend.empty(DType::i64, {communicator.world_size()}, Category::communication);
  backend.upload(lengths, std::as_bytes(std::span(counts)));
  const Tensor own_length = lengths.slice(communicator.rank(), 1);
  communicator.all_gather(lengths, own_length, "doctor: lengths").wait();
  backend.download(std::as_writable_bytes(std::span(counts)), lengths);

  const auto first =
      std::accumulate(counts.begin(), counts.begin() + communicator.rank(), std::int64_t{0});
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const Tensor all = backend.empty(DType::i8, {total}, Category::communication);
  const Tensor own_part = all.slice(first, counts[rank]);
  backend.upload(own_part, std::as_bytes(std::span(text)));
  communicator.all_gather(all, own_part, counts, "doctor: texts").wait();
  std::string received(static_cast<std::size_t>(total), '\0');
  backend.download(std::as_writable_bytes(std::span(received)), all);

  std::vector<Json> result;
  auto begin = received.begin();
  for (const std::int64_t count : counts) {
    result.push_back(Json::parse(begin, begin + count));
    begin += count;
  }
  return result;
}

// --- What is said --------------------------------------------------------------------------------

constexpr std::size_t columns = 100;
constexpr std::size_t name_column = 6;
constexpr std::size_t text_column = name_column + 15;

Verdict worst_of(const std::vector<Section>& sections) {
  Verdict worst = Verdict::ok;
  for (const Section& section : sections) {
    for (const Finding& finding : section.findings) {
      worst = std::max(worst, finding.verdict);
    }
  }
  return worst;
}

ExitCode exit_code(const std::vector<Section>& sections) {
  return worst_of(sections) == Verdict::fail ? ExitCode::failed : ExitCode::ok;
}

void print(const std::vector<Section>& sections) {
  int warnings = 0;
  for (const Section& section : sections) {
    // One machine needs no name.
    if (!section.host.empty() && sections.size() > 2) {
      std::cout << fmt::format("\non {}\n", section.host);
    }
    for (const Finding& finding : section.findings) {
      warnings += finding.verdict == Verdict::warn ? 1 : 0;
      std::cout << fmt::format("{:<{}}{:<{}}{}\n", name_of(finding.verdict), name_column,
                               finding.name, text_column - name_column,
                               wrap(finding.found, columns - text_column, text_column));
      if (!finding.remedy.empty()) {
        std::cout << fmt::format("{:{}}-> {}\n", "", text_column,
                                 wrap(finding.remedy, columns - text_column - 3, text_column + 3));
      }
    }
  }
  std::cout << (exit_code(sections) != ExitCode::ok ? "\nRingworld cannot work like this.\n"
                : warnings == 0
                    ? "\nAll is well.\n"
                    : fmt::format("\nRingworld works; {} to see to.\n",
                                  warnings == 1 ? "1 thing" : fmt::format("{} things", warnings)))
            << std::flush;
}

void report(const DoctorOptions& o, const std::vector<Section>& sections, int ranks) {
  if (o.json != "-") {
    print(sections);
  }
  if (o.json.empty()) {
    return;
  }
  Json findings = Json::array();
  for (const Section& section : sections) {
    for (Json& finding : json_of(section.findings)) {
      finding["host"] = section.host.empty() ? Json() : Json(section.host);
      findings.push_back(std::move(finding));
    }
  }
  write_json(o.json, {{"schema", "ringworld.doctor"},
                      {"version", 1},
                      {"ranks", ranks},
                      {"verdict", name_of(worst_of(sections))},
                      {"findings", std::move(findings)}});
}

}  // namespace

ExitCode run_doctor(const DoctorOptions& o, Transport& transport) {
  ResourceOptions resources;
  resources.timeout = o.timeout;
  Rank rank(resources, transport);
  Communicator& communicator = rank.communicator();
  rank.check_same_everywhere(o.settings);

  std::vector<RankFacts> facts;
  for (const Json& json : gather(json_of(own_facts(transport.description())), communicator)) {
    facts.push_back(facts_of(json));
  }
  const auto own = static_cast<std::size_t>(communicator.rank());
  std::vector<RankFacts> here;
  bool first_here = true;
  for (std::size_t other = 0; other < facts.size(); ++other) {
    if (facts[other].host == facts[own].host) {
      here.push_back(facts[other]);
      first_here = first_here && other >= own;
    }
  }
  const std::vector<Json> machines =
      gather(json_of(first_here ? look_at_machine(here) : std::vector<Finding>()), communicator);

  const Launcher& launcher = find_launcher();
  const bool alone = launcher.name.empty() && facts.size() == 1;
  std::vector<Section> sections = {
      {.findings = {
           check_program(),
           {.name = "MPI", .found = facts[0].library},
           check_launcher(launcher, facts[0].library, alone ? library_of_mpiexec() : std::string(),
                          static_cast<int>(facts.size()), runs_as_root()),
           check_ranks(facts)}}};
  for (std::size_t other = 0; other < machines.size(); ++other) {
    if (!machines[other].empty()) {
      sections.push_back({.host = facts[other].host, .findings = findings_of(machines[other])});
    }
  }
  rank.on_rank_0([&] { report(o, sections, communicator.world_size()); });
  return exit_code(sections);
}

// Every process is alone then; the launcher's first one speaks for all, which are equal.
ExitCode run_doctor(const DoctorOptions& o, const std::string& failure) {
  if (find_launcher().rank.value_or(0) != 0) {
    return ExitCode::ok;
  }
  const std::vector<RankFacts> self = {own_facts("")};
  const std::vector<Section> sections = {
      {.findings = {check_program(), {.name = "MPI", .verdict = Verdict::fail, .found = failure}}},
      {.host = self[0].host, .findings = look_at_machine(self)}};
  report(o, sections, 1);
  return exit_code(sections);
}

}  // namespace ringworld
