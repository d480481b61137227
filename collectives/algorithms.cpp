// The rows of the table. A new algorithm is a file that defines its emit function, the declaration
// of that function here, and a row.
#include <bit>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/algorithm.h"
#include "runtime/error.h"
#include "runtime/nearest.h"

namespace ringworld {

Schedule ring_all_reduce(int rank, int ranks, int root);                   // ring.cpp
Schedule ring_reduce_scatter(int rank, int ranks, int root);               // ring.cpp
Schedule ring_all_gather(int rank, int ranks, int root);                   // ring.cpp
Schedule ring_broadcast(int rank, int ranks, int root);                    // ring.cpp
Schedule recursive_doubling_all_reduce(int rank, int ranks, int root);     // recursive.cpp
Schedule halving_doubling_all_reduce(int rank, int ranks, int root);       // recursive.cpp
Schedule recursive_halving_reduce_scatter(int rank, int ranks, int root);  // recursive.cpp
Schedule recursive_doubling_all_gather(int rank, int ranks, int root);     // recursive.cpp
Schedule tree_all_reduce(int rank, int ranks, int root);                   // tree.cpp
Schedule tree_broadcast(int rank, int ranks, int root);                    // tree.cpp
Schedule scatter_all_gather_broadcast(int rank, int ranks, int root);      // tree.cpp
Schedule tree_reduce(int rank, int ranks, int root);                       // tree.cpp
Schedule tree_gather(int rank, int ranks, int root);                       // tree.cpp
Schedule tree_scatter(int rank, int ranks, int root);                      // tree.cpp
Schedule double_tree_all_reduce(int rank, int ranks, int root);            // double_tree.cpp
Schedule direct_all_reduce(int rank, int ranks, int root);                 // direct.cpp
Schedule direct_reduce_scatter(int rank, int ranks, int root);             // direct.cpp
Schedule direct_all_gather(int rank, int ranks, int root);                 // direct.cpp
Schedule one_shot_all_reduce(int rank, int ranks, int root);               // direct.cpp
Schedule direct_broadcast(int rank, int ranks, int root);                  // direct.cpp
Schedule direct_reduce(int rank, int ranks, int root);                     // direct.cpp
Schedule direct_all_to_all(int rank, int ranks, int root);                 // direct.cpp
Schedule pairwise_reduce_scatter(int rank, int ranks, int root);           // pairwise.cpp
Schedule pairwise_all_to_all(int rank, int ranks, int root);               // pairwise.cpp
Schedule bruck_all_gather(int rank, int ranks, int root);                  // bruck.cpp
Schedule bruck_all_to_all(int rank, int ranks, int root);                  // bruck.cpp
Schedule dissemination_barrier(int rank, int ranks, int root);             // dissemination.cpp

namespace {

using Count = std::int64_t;

// The parts that formulas are made of.
Count ceil_log2(Count p) {
  return std::bit_width(static_cast<std::uint64_t>(p - 1));
}

Count floor_log2(Count p) {
  return std::bit_width(static_cast<std::uint64_t>(p)) - 1;
}

Count core(Count p) {  // the largest power of two that is not above P
  return Count{1} << floor_log2(p);
}

Count bits_below(Count p) {  // the bits that are set in 0, 1, ..., P - 1, together
  Count bits = 0;
  for (Count i = 0; i < p; ++i) {
    bits += std::popcount(static_cast<std::uint64_t>(i));
  }
  return bits;
}

// Formulas that several rows share.
Formula no_steps_or(const std::string& text, Count (*value)(Count)) {
  return {text, [value](Count p, Count /*n*/) { return p == 1 ? 0 : value(p); }};
}

const Formula one_step = no_steps_or("1", [](Count) -> Count { return 1; });
const Formula one_less = no_steps_or("P - 1", [](Count p) { return p - 1; });
const Formula log_steps = no_steps_or("ceil(log2 P)", ceil_log2);
const Formula folded_log_steps =
    no_steps_or("floor(log2 P), + 2 unless P is a power of two",
                [](Count p) { return floor_log2(p) + (p > core(p) ? 2 : 0); });
const Formula once = {"(P - 1) n", [](Count p, Count n) { return (p - 1) * n; }};
const Formula twice = {"2 (P - 1) n", [](Count p, Count n) { return 2 * (p - 1) * n; }};
const Formula along_the_tree = {"B n / P, B: bits set in 0, ..., P - 1",
                                [](Count p, Count n) { return bits_below(p) * n / p; }};

std::deque<Algorithm> own_rows() {
  using enum Operation;
  return {
      {.name = "ring",
       .operation = all_reduce,
       .emit = ring_all_reduce,
       .steps = no_steps_or("2 (P - 1)", [](Count p) { return 2 * (p - 1); }),
       .elements_sent = twice},
      {.name = "recursive_doubling",
       .operation = all_reduce,
       .emit = recursive_doubling_all_reduce,
       .steps = folded_log_steps,
       .elements_sent = {"(C log2 C + 2 (P - C)) n, C: largest power of two up to P",
                         [](Count p, Count n) {
                           return (core(p) * floor_log2(p) + 2 * (p - core(p))) * n;
                         }}},
      {.name = "halving_doubling",
       .operation = all_reduce,
       .emit = halving_doubling_all_reduce,
       .steps = no_steps_or("2 floor(log2 P), + 2 unless P is a power of two",
                            [](Count p) { return 2 * floor_log2(p) + (p > core(p) ? 2 : 0); }),
       .elements_sent = twice},
      {.name = "tree",
       .operation = all_reduce,
       .emit = tree_all_reduce,
       .steps = no_steps_or("2 ceil(log2 P)", [](Count p) { return 2 * ceil_log2(p); }),
       .elements_sent = twice},
      {.name = "double_tree",
       .operation = all_reduce,
       .emit = double_tree_all_reduce,
       .steps = no_steps_or("2 ceil(log2 P) + 3", [](Count p) { return 2 * ceil_log2(p) + 3; }),
       .elements_sent = twice},
      {.name = "direct",
       .operation = all_reduce,
       .emit = direct_all_reduce,
       .steps = no_steps_or("2", [](Count) -> Count { return 2; }),
       .elements_sent = twice,
       .rank_order = true},
      {.name = "one_shot",
       .operation = all_reduce,
       .emit = one_shot_all_reduce,
       .steps = one_step,
       .elements_sent = {"P (P - 1) n", [](Count p, Count n) { return p * (p - 1) * n; }},
       .rank_order = true},
      {.name = "ring",
       .operation = reduce_scatter,
       .emit = ring_reduce_scatter,
       .steps = one_less,
       .elements_sent = once},
      {.name = "recursive_halving",
       .operation = reduce_scatter,
       .emit = recursive_halving_reduce_scatter,
       .steps = folded_log_steps,
       .elements_sent = {"(P - 1) n + (P - C) n / P, C: largest power of two up to P",
                         [](Count p, Count n) {
                           Count back = 0;  // to the folded ranks, their blocks as they are cut
                           for (int pair = 0; pair < p - core(p); ++pair) {
                             back += chunk_range(n, static_cast<int>(p), 2 * pair).count;
                           }
                           return (p - 1) * n + back;
                         }}},
      {.name = "pairwise",
       .operation = reduce_scatter,
       .emit = pairwise_reduce_scatter,
       .steps = one_less,
       .elements_sent = once},
      {.name = "direct",
       .operation = reduce_scatter,
       .emit = direct_reduce_scatter,
       .steps = one_step,
       .elements_sent = once,
       .rank_order = true},
      {.name = "ring",
       .operation = all_gather,
       .emit = ring_all_gather,
       .steps = one_less,
       .elements_sent = once},
      {.name = "recursive_doubling",
       .operation = all_gather,
       .emit = recursive_doubling_all_gather,
       .steps = folded_log_steps,
       .elements_sent = once},
      {.name = "bruck",
       .operation = all_gather,
       .emit = bruck_all_gather,
       .steps = log_steps,
       .elements_sent = once},
      {.name = "direct",
       .operation = all_gather,
       .emit = direct_all_gather,
       .steps = one_step,
       .elements_sent = once},
      {.name = "ring",
       .operation = broadcast,
       .emit = ring_broadcast,
       .steps = no_steps_or("3 P - 2", [](Count p) { return 3 * p - 2; }),
       .elements_sent = once},
      {.name = "tree",
       .operation = broadcast,
       .emit = tree_broadcast,
       .steps = log_steps,
       .elements_sent = once},
      {.name = "direct",
       .operation = broadcast,
       .emit = direct_broadcast,
       .steps = one_step,
       .elements_sent = once},
      {.name = "scatter_all_gather",
       .operation = broadcast,
       .emit = scatter_all_gather_broadcast,
       .steps = no_steps_or("ceil(log2 P) + P - 1", [](Count p) { return ceil_log2(p) + p - 1; }),
       .elements_sent = {"(P - 1) n + B n / P, B: bits set in 0, ..., P - 1",
                         [](Count p, Count n) { return (p - 1) * n + bits_below(p) * n / p; }}},
      {.name = "tree",
       .operation = reduce,
       .emit = tree_reduce,
       .steps = log_steps,
       .elements_sent = once},
      {.name = "direct",
       .operation = reduce,
       .emit = direct_reduce,
       .steps = one_step,
       .elements_sent = once,
       .rank_order = true},
      {.name = "pairwise",
       .operation = all_to_all,
       .emit = pairwise_all_to_all,
       .steps = one_less,
       .elements_sent = once},
      {.name = "bruck",
       .operation = all_to_all,
       .emit = bruck_all_to_all,
       .steps = log_steps,
       .elements_sent = {"B n, B: bits set in 0, ..., P - 1",
                         [](Count p, Count n) { return bits_below(p) * n; }},
       .equal_chunks = true},
      {.name = "direct",
       .operation = all_to_all,
       .emit = direct_all_to_all,
       .steps = one_step,
       .elements_sent = once},
      {.name = "tree",
       .operation = gather,
       .emit = tree_gather,
       .steps = log_steps,
       .elements_sent = along_the_tree},
      {.name = "tree",
       .operation = scatter,
       .emit = tree_scatter,
       .steps = log_steps,
       .elements_sent = along_the_tree},
      {.name = "dissemination",
       .operation = barrier,
       .emit = dissemination_barrier,
       .steps = log_steps,
       .elements_sent = {"P ceil(log2 P) n",
                         [](Count p, Count n) { return p * ceil_log2(p) * n; }}},
  };
}

// The reference of each operation.
Algorithm library_row(Operation operation) {
  const Formula unknown = {"the library's own", [](Count, Count) -> Count { return 0; }};
  return {.name = "mpi",
          .operation = operation,
          .emit = {},
          .steps = unknown,
          .elements_sent = unknown,
          .library = true};
}

std::deque<Algorithm>& table() {
  static std::deque<Algorithm> rows = [] {
    std::deque<Algorithm> all = own_rows();
    for (const Operation operation : all_operations) {
      all.push_back(library_row(operation));
    }
    return all;
  }();
  return rows;
}

}  // namespace

const std::deque<Algorithm>& algorithms() {
  return table();
}

const Algorithm& register_algorithm(Algorithm algorithm) {
  if (look_up(algorithm.operation, algorithm.name) != nullptr) {
    throw std::invalid_argument(
        fmt::format("register_algorithm: {} has an algorithm \"{}\" already",
                    name_of(algorithm.operation), algorithm.name));
  }
  return table().emplace_back(std::move(algorithm));
}

const Algorithm* look_up(Operation operation, std::string_view name) {
  for (const Algorithm& algorithm : table()) {
    if (algorithm.operation == operation && algorithm.name == name) {
      return &algorithm;
    }
  }
  return nullptr;
}

const Algorithm& find_algorithm(Operation operation, std::string_view name) {
  if (const Algorithm* found = look_up(operation, name)) {
    return *found;
  }
  const std::vector<std::string> known = algorithm_names(operation);
  throw UsageError(
      fmt::format("there is no algorithm \"{}\" for {}; did you mean {}? Choose one of: {}", name,
                  name_of(operation), nearest(name, known), fmt::join(known, ", ")));
}

std::vector<std::string> algorithm_names(Operation operation) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : table()) {
    if (algorithm.operation == operation) {
      names.push_back(algorithm.name);
    }
  }
  return names;
}

Operation parse_operation(std::string_view text) {
  std::vector<std::string> known;
  for (const Operation operation : all_operations) {
    if (name_of(operation) == text) {
      return operation;
    }
    known.emplace_back(name_of(operation));
  }
  throw UsageError(fmt::format("there is no operation \"{}\"; did you mean {}? Choose one of: {}",
                               text, nearest(text, known), fmt::join(known, ", ")));
}

}  // namespace ringworld
