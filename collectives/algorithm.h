// The table of algorithms: what there is for each operation, its emit function, its constraints and
// its cost in closed form. Communicator, proof, tests, benchmark and command line read it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/schedule.h"

namespace ringworld {

// A closed form over P ranks and n elements, as people read it and as a function.
struct Formula {
  std::string text;
  std::function<std::int64_t(std::int64_t ranks, std::int64_t count)> value;
};

struct Algorithm {
  std::string name;
  Operation operation;
  // The schedule of `rank` among `ranks`; `root` is for operations that have one.
  std::function<Schedule(int rank, int ranks, int root)> emit;
  // Held against the schedules by the proof. Steps that follow one another from the first to the
  // last completion, when every step with messages takes the same time and local actions none.
  Formula steps;
  // By all ranks together, for n elements: the buffer's; for reduce_scatter, scatter and all_to_all
  // the length of a rank's (the root's) input, for all_gather and gather that of the output.
  Formula elements_sent;
  // Right only when all chunks are equally long.
  bool equal_chunks = false;
  // Adds the contributions in the order of the ranks, ((0 + 1) + 2) + ..., so that the bits depend
  // neither on how the buffer is cut nor on the algorithm.
  bool rank_order = false;
  // The communication library's own call, as the reference to compare with: it has no schedule, and
  // nothing of it is proved. Over all ranks only.
  bool library = false;
  // Why it cannot serve so many ranks; empty when it can.
  std::function<std::string(int ranks)> refuses = [](int) { return std::string(); };
};

// References to algorithms stay valid when others are added.
const std::deque<Algorithm>& algorithms();
// Adds one; before communicators are used. Throws std::invalid_argument when the operation has one
// of this name already.
const Algorithm& register_algorithm(Algorithm algorithm);

// nullptr when there is none.
const Algorithm* look_up(Operation operation, std::string_view name);
// Throws UsageError that names the nearest and lists the operation's algorithms.
const Algorithm& find_algorithm(Operation operation, std::string_view name);
std::vector<std::string> algorithm_names(Operation operation);
// Throws UsageError that lists the known ones.
Operation parse_operation(std::string_view text);

}  // namespace ringworld
