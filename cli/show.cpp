// ringworld show: what a collective algorithm does step by step, what it costs, and whether it is
// proved.
#include <iostream>
#include <optional>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_file.h"
#include "collectives/proof.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

// "0-2 5", "all", "." for nothing.
std::string to_text(const Contributors& contributors, int ranks) {
  if (ranks > 1 && static_cast<int>(contributors.count()) == ranks) {
    return "all";
  }
  std::string text;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!contributors[rank]) {
      continue;
    }
    int last = rank;
    while (last + 1 < ranks && contributors[last + 1]) {
      ++last;
    }
    text += text.empty() ? "" : " ";
    text += last > rank + 1 ? fmt::format("{}-{}", rank, last)
            : last > rank   ? fmt::format("{} {}", rank, last)
                            : fmt::format("{}", rank);
    rank = last;
  }
  return text.empty() ? "." : text;
}

// In an all-to-all, a part is what one rank has for another.
std::string to_text(const Content& content, Operation operation, int ranks) {
  if (operation == Operation::all_to_all && content.defined()) {
    return fmt::format("{}>{}", content.part / ranks, content.part % ranks);
  }
  return to_text(content.contributors, ranks);
}

std::string chunk_name(Operation operation, const Schedule& schedule, int chunk, int ranks) {
  if (chunk >= schedule.data_chunks()) {
    return fmt::format("scratch {}", chunk - schedule.data_chunks());
  }
  if (operation == Operation::all_to_all) {
    return chunk < ranks ? fmt::format("to {}", chunk) : fmt::format("from {}", chunk - ranks);
  }
  return fmt::format("{}", chunk);
}

// One row for each chunk that changes in a step; what changed has a star. Steps are counted from 0,
// as the proof's refutations and the formulas of algorithms do.
std::string steps_text(Operation operation, const std::vector<Schedule>& schedules,
                       const std::vector<Contents>& history) {
  const int ranks = static_cast<int>(schedules.size());
  std::vector<Table::Column> columns = {{"after step"}, {"chunk"}};
  for (int rank = 0; rank < ranks; ++rank) {
    columns.push_back({fmt::format("rank {}", rank)});
  }
  std::size_t chunks = 0;
  std::size_t widest = 0;  // rank with most chunks
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    if (history[0][rank].size() > chunks) {
      chunks = history[0][rank].size();
      widest = rank;
    }
  }
  Table table(columns);
  for (std::size_t time = 0; time < history.size(); ++time) {
    bool first = true;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      std::vector<std::string> row = {
          first ? (time == 0 ? "start" : fmt::format("{}", time - 1)) : "",
          chunk_name(operation, schedules[widest], static_cast<int>(chunk), ranks)};
      bool changed = false;
      bool anything = false;
      for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
        if (chunk >= history[time][rank].size()) {
          row.emplace_back();
          continue;
        }
        const Content& content = history[time][rank][chunk];
        const bool differs = time > 0 && !(content == history[time - 1][rank][chunk]);
        changed = changed || differs;
        anything = anything || content.defined();
        row.push_back(to_text(content, operation, ranks) + (differs ? "*" : ""));
      }
      if (time == 0 ? anything : changed) {
        table.add_row(std::move(row));
        first = false;
      }
    }
  }
  return table.text();
}

Json json_of(const Schedule& schedule) {
  Json steps = Json::array();
  for (const Step& step : schedule.steps()) {
    Json actions = Json::array();
    for (const LocalAction& action : step.local) {
      actions.push_back(
          {{"verb", name_of(action.verb)}, {"chunk", action.chunk}, {"source", action.source}});
    }
    for (const Action& action : step.actions) {
      actions.push_back(
          {{"verb", name_of(action.verb)}, {"peer", action.peer}, {"chunk", action.chunk}});
    }
    steps.push_back(std::move(actions));
  }
  return steps;
}

// history[step][rank][chunk]: the contributing ranks.
Json json_of(const std::vector<Contents>& history, int ranks) {
  Json json = Json::array();
  for (const Contents& contents : history) {
    Json of_step = Json::array();
    for (const std::vector<Content>& of_rank : contents) {
      Json chunks = Json::array();
      for (const Content& content : of_rank) {
        Json contributors = Json::array();
        for (int rank = 0; rank < ranks; ++rank) {
          if (content.contributors[rank]) {
            contributors.push_back(rank);
          }
        }
        chunks.push_back(std::move(contributors));
      }
      of_step.push_back(std::move(chunks));
    }
    json.push_back(std::move(of_step));
  }
  return json;
}

struct Verdict {
  int proved = 0;  // worlds
  int refused = 0;
  std::string reason;                     // of the first refusal
  std::optional<std::string> refutation;  // the first
};

Verdict prove(const Algorithm& algorithm) {
  Verdict verdict;
  for (int ranks = 1; ranks <= max_proved_ranks && !verdict.refutation; ++ranks) {
    if (const std::string reason = algorithm.refuses(ranks); !reason.empty()) {
      verdict.reason = verdict.refused++ == 0 ? reason : verdict.reason;
      continue;
    }
    verdict.refutation = refute(algorithm, ranks);
    verdict.proved += verdict.refutation ? 0 : 1;
  }
  return verdict;
}

std::string verdict_text(const Algorithm& algorithm, const Verdict& verdict) {
  if (verdict.refutation) {
    return fmt::format("Proof: WRONG\n  {}\n", *verdict.refutation);
  }
  std::string text =
      verdict.refused == 0
          ? fmt::format("Proof: right for every number of ranks from 1 to {}", max_proved_ranks)
          : fmt::format("Proof: right for {} of the numbers of ranks from 1 to {}",
                        max_proved_ranks - verdict.refused, max_proved_ranks);
  text += has_root(algorithm.operation) ? " and every root.\n" : ".\n";
  if (verdict.refused > 0) {
    text +=
        fmt::format("  The other {} are refused, such as: {}.\n", verdict.refused, verdict.reason);
  }
  text +=
      "  Every message is matched, nobody waits for ever even without buffering, nothing is added\n"
      "  twice, every rank gets what is promised, with the same bits, in these steps and "
      "elements.\n";
  if (algorithm.rank_order) {
    text += "  Contributions are added in the order of the ranks.\n";
  }
  if (algorithm.equal_chunks) {
    text += "  For equal counts only; others are refused.\n";
  }
  return text;
}

}  // namespace

ExitCode run_show(const ShowOptions& o, Transport& transport) {
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  const Algorithm& algorithm = find_algorithm(o.operation, o.algorithm);
  const std::vector<Schedule> schedules = emit_all(algorithm, o.ranks, o.root);
  const ProofOptions options{.root = o.root, .equal_chunks = algorithm.equal_chunks};
  const std::optional<std::string> wrong = refute(o.operation, schedules, options);
  const std::vector<Contents> history =
      wrong ? std::vector<Contents>() : trace(o.operation, schedules, options);
  const Verdict verdict = prove(algorithm);

  // Elements for a buffer that cuts into equal chunks, in units of the buffer.
  const std::int64_t count = std::int64_t{o.ranks} * schedules[0].data_chunks();
  const double buffers = static_cast<double>(algorithm.elements_sent.value(o.ranks, count)) /
                         static_cast<double>(count);
  const std::int64_t steps = algorithm.steps.value(o.ranks, count);
  const std::string title = fmt::format(
      "{} {}, {} rank{}{}", algorithm.name, name_of(o.operation), o.ranks, o.ranks == 1 ? "" : "s",
      has_root(o.operation) ? fmt::format(", root {}", o.root) : "");

  if (o.json != "-") {
    std::cout << title << "\n\n";
    if (!history.empty()) {
      std::cout
          << steps_text(o.operation, schedules, history)
          << (o.operation == Operation::all_to_all
                  ? "\nWhat each rank's chunks hold: 2>0 is what rank 2 has for rank 0; * is "
                    "new, . is nothing.\n"
                  : "\nWhose contributions each rank's chunks hold; * is new, . is nothing.\n");
    }
    const std::string steps_value = fmt::format("{}", steps);
    std::cout << fmt::format(
                     "\nCost for P ranks and n elements\n"
                     "  steps          {}{}\n"
                     "  elements sent  {}\n"
                     "                 = {:.6g} n by all ranks together, {:.6g} n by one on "
                     "average\n\n",
                     algorithm.steps.text,
                     algorithm.steps.text == steps_value ? "" : " = " + steps_value,
                     algorithm.elements_sent.text, buffers, buffers / o.ranks)
              << verdict_text(algorithm, verdict) << std::flush;
  }
  if (!o.json.empty()) {
    Json of_ranks = Json::array();
    for (const Schedule& schedule : schedules) {
      of_ranks.push_back(json_of(schedule));
    }
    write_json(o.json,
               {{"schema", "ringworld.show"},
                {"version", 1},
                {"operation", name_of(o.operation)},
                {"algorithm", algorithm.name},
                {"ranks", o.ranks},
                {"root", o.root},
                {"data_chunks", schedules[0].data_chunks()},
                {"schedules", std::move(of_ranks)},
                {"history", json_of(history, o.ranks)},
                {"cost",
                 {{"steps", {{"formula", algorithm.steps.text}, {"value", steps}}},
                  {"elements_sent",
                   {{"formula", algorithm.elements_sent.text}, {"per_element", buffers}}}}},
                {"proof",
                 {{"right", !verdict.refutation},
                  {"proved_worlds", verdict.proved},
                  {"refused_worlds", verdict.refused},
                  {"largest_world", max_proved_ranks},
                  {"refutation", verdict.refutation ? Json(*verdict.refutation) : Json()}}}});
  }
  return verdict.refutation || wrong ? ExitCode::failed : ExitCode::ok;
}

}  // namespace ringworld
