#include "collectives/schedule.h"

#include <algorithm>
#include <map>
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

std::vector<bool> Schedule::borrowed() const {
  struct Use {
    int arrives = -1;  // in which step
    bool otherwise = false;
  };
  std::vector<Use> uses(static_cast<std::size_t>(chunks()));
  const auto use = [&](int chunk) -> Use& { return uses.at(static_cast<std::size_t>(chunk)); };
  std::vector<int> sent_in(static_cast<std::size_t>(chunks()), -1);  // the last step that sends it
  for (int index = 0; index < static_cast<int>(steps_.size()); ++index) {
    const Step& step = steps_[static_cast<std::size_t>(index)];
    const bool writes_what_was_sent = std::ranges::any_of(step.local, [&](const auto& action) {
      return index > 0 && sent_in.at(static_cast<std::size_t>(action.chunk)) == index - 1;
    });
    for (const LocalAction& action : step.local) {
      use(action.chunk).otherwise = true;
      Use& source = use(action.source);
      source.otherwise = source.otherwise || source.arrives < 0 || source.arrives + 1 != index ||
                         writes_what_was_sent;
    }
    std::map<int, int> received;  // chunks, by peer
    for (const Action& action : step.actions) {
      if (action.verb == Verb::send) {
        sent_in.at(static_cast<std::size_t>(action.chunk)) = index;
      } else {
        ++received[action.peer];
      }
    }
    for (const Action& action : step.actions) {
      Use& used = use(action.chunk);
      if (action.verb == Verb::receive && received[action.peer] == 1 && used.arrives < 0) {
        used.arrives = index;
      } else {
        used.otherwise = true;
      }
    }
  }
  std::vector<bool> borrowed;
  for (int chunk = 0; chunk < chunks(); ++chunk) {
    borrowed.push_back(chunk >= data_chunks_ && use(chunk).arrives >= 0 && !use(chunk).otherwise);
  }
  return borrowed;
}

Range chunk_range(std::int64_t count, int chunks, int chunk) {
  const std::int64_t size = count / chunks;
  const std::int64_t larger = count % chunks;  // this many chunks have one element more
  return {chunk * size + std::min<std::int64_t>(chunk, larger), size + (chunk < larger ? 1 : 0)};
}

}  // namespace ringworld
