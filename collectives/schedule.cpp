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
  }
  throw std::invalid_argument("name_of: not an operation");
}

std::string_view name_of(Verb verb) {
  switch (verb) {
    case Verb::send:
      return "send";
    case Verb::receive:
      return "receive";
    case Verb::receive_reduce:
      return "receive_reduce";
  }
  throw std::invalid_argument("name_of: not a verb");
}

void Schedule::begin_step() {
  step_open_ = false;
}

void Schedule::add(Action action) {
  if (!step_open_) {
    steps_.emplace_back();
    step_open_ = true;
  }
  steps_.back().actions.push_back(action);
}

Range chunk_range(std::int64_t count, int chunks, int chunk) {
  const std::int64_t size = count / chunks;
  const std::int64_t larger = count % chunks;  // this many chunks have one element more
  return {chunk * size + std::min<std::int64_t>(chunk, larger), size + (chunk < larger ? 1 : 0)};
}

}  // namespace ringworld
