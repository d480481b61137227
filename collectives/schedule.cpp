#include "collectives/schedule.h"

#include <algorithm>
#include <stdexcept>

namespace ringworld {

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_gather:
      return "all_gather";
    case Operation::broadcast:
      return "broadcast";
    case Operation::reduce:
      return "reduce";
    case Operation::all_to_all:
      return "all_to_all";
    case Operation::gather:
      return "gather";
    case Operation::scatter:
      return "scatter";
    case Operation::barrier:
      return "barrier";
  }
  throw std::invalid_argument("name_of: not an operation");
}

bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce ||
         operation == Operation::gather || operation == Operation::scatter;
}

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter ||
         operation == Operation::reduce;
}

int demanded_chunks(Operation operation, int ranks) {
  switch (operation) {
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::gather:
    case Operation::scatter:
      return ranks;
    case Operation::all_to_all:
      return 2 * ranks;
    default:
      return 0;
  }
}

std::string_view name_of(Verb verb) {
  switch (verb) {
    case Verb::send:
      return "send";
    case Verb::receive:
      return "receive";
    case Verb::receive_reduce:
      return "receive_reduce";
    case Verb::copy:
      return "copy";
    case Verb::reduce:
      return "reduce";
  }
  throw std::invalid_argument("name_of: not a verb");
}

int Schedule::add_scratch(int as_long_as) {
  scratch_.push_back(as_long_as);
  return chunks() - 1;
}

Step& Schedule::open_step() {
  if (!step_open_) {
    steps_.emplace_back();
    step_open_ = true;
  }
  return steps_.back();
}

Range chunk_range(std::int64_t count, int chunks, int chunk) {
  const std::int64_t size = count / chunks;
  const std::int64_t larger = count % chunks;  // this many chunks have one element more
  return {chunk * size + std::min<std::int64_t>(chunk, larger), size + (chunk < larger ? 1 : 0)};
}

}  // namespace ringworld
