#include "collectives/hierarchical.h"

#include <charconv>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {

namespace {

// A chunk of a part's schedule is a run of chunks of the whole one.
struct Run {
  int first;
  int count;
};

// Appends the steps of `part`, whose rank p is rank_at(p) and whose data chunk c is run_at(c).
void append(Schedule& schedule, const Schedule& part, const std::function<int(int)>& rank_at,
            const std::function<Run(int)>& run_at) {
  std::vector<Run> runs;
  for (int chunk = 0; chunk < part.data_chunks(); ++chunk) {
    runs.push_back(run_at(chunk));
  }
  for (const int as_long_as : part.scratch()) {
    const Run like = runs[as_long_as];
    runs.push_back({schedule.chunks(), like.count});
    for (int i = 0; i < like.count; ++i) {
      schedule.add_scratch(like.first + i);
    }
  }
  for (const Step& step : part.steps()) {
    schedule.begin_step();
    for (const LocalAction& action : step.local) {
      for (int i = 0; i < runs[action.chunk].count; ++i) {
        const int chunk = runs[action.chunk].first + i;
        const int source = runs[action.source].first + i;
        action.verb == Verb::copy ? schedule.copy(chunk, source) : schedule.reduce(chunk, source);
      }
    }
    for (const Action& action : step.actions) {
      const int peer = rank_at(action.peer);
      for (int i = 0; i < runs[action.chunk].count; ++i) {
        const int chunk = runs[action.chunk].first + i;
        switch (action.verb) {
          case Verb::send:
            schedule.send(peer, chunk);
            break;
          case Verb::receive:
            schedule.receive(peer, chunk);
            break;
          default:
            schedule.receive_reduce(peer, chunk);
        }
      }
    }
  }
}

}  // namespace

Algorithm hierarchical_all_reduce(int nodes, std::string_view reduce_scatter,
                                  std::string_view between, std::string_view all_gather) {
  const Algorithm* scatters = &find_algorithm(Operation::reduce_scatter, reduce_scatter);
  const Algorithm* reduces = &find_algorithm(Operation::all_reduce, between);
  const Algorithm* gathers = &find_algorithm(Operation::all_gather, all_gather);
  for (const Algorithm* part : {scatters, reduces, gathers}) {
    if (part->library) {
      throw UsageError(fmt::format(
          "hierarchical: {} is the MPI library's own call, which cannot be part of another one",
          part->name));
    }
  }
  Algorithm algorithm;
  algorithm.name =
      fmt::format("hierarchical:{}:{}:{}:{}", nodes, reduce_scatter, between, all_gather);
  algorithm.operation = Operation::all_reduce;

  // With L ranks in a node, part l of the buffer is reduced between the l-th ranks of all nodes, in
  // as many chunks as the algorithm between nodes wants: they are chunks l K to (l + 1) K - 1.
  algorithm.emit = [=](int rank, int ranks, int /*root*/) {
    const int local = ranks / nodes;
    const int node = rank / local;
    const int own = rank % local;
    const Schedule across = reduces->emit(node, nodes, 0);
    const int per_part = across.data_chunks();
    Schedule schedule(local * per_part);
    const auto in_node = [&](int peer) { return node * local + peer; };
    const auto part = [&](int l) { return Run{l * per_part, per_part}; };
    append(schedule, scatters->emit(own, local, 0), in_node, part);
    append(
        schedule, across, [&](int peer) { return peer * local + own; },
        [&](int chunk) {
          return Run{own * per_part + chunk, 1};
        });
    append(schedule, gathers->emit(own, local, 0), in_node, part);
    return schedule;
  };
  algorithm.steps = {fmt::format("of {}, {} and {} over P / {}, {} and P / {} ranks, together",
                                 reduce_scatter, between, all_gather, nodes, nodes, nodes),
                     [=](std::int64_t p, std::int64_t n) {
                       return scatters->steps.value(p / nodes, n) + reduces->steps.value(nodes, n) +
                              gathers->steps.value(p / nodes, n);
                     }};
  algorithm.elements_sent = {fmt::format("of {} and {} in {} nodes, and of {} over {} ranks",
                                         reduce_scatter, all_gather, nodes, between, nodes),
                             [=](std::int64_t p, std::int64_t n) {
                               // The parts together are n, and each is reduced between nodes once.
                               return nodes * scatters->elements_sent.value(p / nodes, n) +
                                      reduces->elements_sent.value(nodes, n) +
                                      nodes * gathers->elements_sent.value(p / nodes, n);
                             }};
  algorithm.refuses = [=](int ranks) -> std::string {
    if (ranks % nodes != 0) {
      return fmt::format("{} nodes do not divide them", nodes);
    }
    for (const Algorithm* inner : {scatters, gathers}) {
      if (std::string reason = inner->refuses(ranks / nodes); !reason.empty()) {
        return reason;
      }
    }
    return reduces->refuses(nodes);
  };
  return algorithm;
}

const Algorithm& find_or_compose(Operation operation, std::string_view name) {
  constexpr std::string_view prefix = "hierarchical:";
  if (operation != Operation::all_reduce || !name.starts_with(prefix) ||
      look_up(operation, name) != nullptr) {
    return find_algorithm(operation, name);
  }
  std::vector<std::string_view> parts;
  for (std::string_view rest = name.substr(prefix.size());;) {
    const std::size_t colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(colon + 1);
  }
  int nodes = 0;
  if (parts.size() == 4) {
    const auto [end, error] =
        std::from_chars(parts[0].data(), parts[0].data() + parts[0].size(), nodes);
    nodes = error == std::errc() && end == parts[0].data() + parts[0].size() ? nodes : 0;
  }
  if (nodes < 1) {
    throw UsageError(fmt::format(
        "\"{}\" is no composition; write hierarchical:NODES:REDUCE_SCATTER:ALL_REDUCE:ALL_GATHER, "
        "for example hierarchical:2:ring:recursive_doubling:ring",
        name));
  }
  return register_algorithm(hierarchical_all_reduce(nodes, parts[1], parts[2], parts[3]));
}

}  // namespace ringworld
