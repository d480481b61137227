#include "collectives/proof.h"

#include <algorithm>
#include <bitset>
#include <deque>
#include <map>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace ringworld {
namespace {

// What a chunk holds: the ranks whose contribution is in it. Empty: nothing defined.
using Contributors = std::bitset<max_proved_ranks>;

std::string to_string(const Contributors& contributors) {
  std::string text;
  for (int rank = 0; rank < max_proved_ranks; ++rank) {
    if (contributors[rank]) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
    }
  }
  return text.empty() ? "nothing" : "the contributions of {" + text + "}";
}

// An action of a rank's current step, with the number of steps that were over when it was posted.
struct Posted {
  int step = 0;
  Action action;
  std::int64_t time = 0;
  Contributors sent;  // what a send carries
};

// Messages from one rank to another. One of the two queues is always empty.
struct Channel {
  std::deque<Posted> sends;
  std::deque<Posted> receives;
};

// Thrown inside, returned by refute.
struct Refutation {
  std::string text;
};

[[noreturn]] void refuted(int rank, int step, const Action& action, const std::string& what) {
  throw Refutation{fmt::format("rank {}, step {}, {} of chunk {} {} rank {}: {}", rank, step,
                               name_of(action.verb), action.chunk,
                               action.verb == Verb::send ? "to" : "from", action.peer, what)};
}

// What a rank's chunk holds before the first step.
Contributors initial(Operation operation, int rank, int chunk, int root) {
  const bool own = (operation == Operation::all_reduce) ||
                   (operation == Operation::reduce_scatter) ||
                   (operation == Operation::all_gather && chunk == rank) ||
                   (operation == Operation::broadcast && rank == root);
  return own ? Contributors().set(rank) : Contributors();
}

// What it must hold after the last step; nothing where the operation promises nothing.
std::optional<Contributors> promised(Operation operation, int rank, int chunk, int ranks,
                                     int root) {
  const Contributors everyone = ~Contributors() >> (max_proved_ranks - ranks);
  switch (operation) {
    case Operation::all_reduce:
      return everyone;
    case Operation::reduce_scatter:
      return chunk == rank ? std::optional(everyone) : std::nullopt;
    case Operation::all_gather:
      return Contributors().set(chunk);
    case Operation::broadcast:
      return Contributors().set(root);
  }
  throw std::invalid_argument("refute: not an operation");
}

// All ranks at once. Sends are not buffered: a step is over when each of its actions has met its
// counterpart in a posted step of the peer.
class Simulation {
 public:
  Simulation(Operation operation, const std::vector<Schedule>& schedules, int root)
      : operation_(operation),
        schedules_(schedules),
        ranks_(static_cast<int>(schedules.size())),
        root_(root),
        states_(schedules.size()) {}

  void run() {
    check_form();
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int chunk = 0; chunk < schedules_[rank].chunks(); ++chunk) {
        states_[rank].chunks.push_back(initial(operation_, rank, chunk, root_));
      }
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      post(rank);
    }
    while (!ready_.empty()) {
      const auto [from, to] = ready_.front();
      ready_.pop_front();
      match(from, to);
    }
    check_finished();
    check_promise();
  }

  // After run: how many steps follow one another on the longest path.
  std::int64_t steps() const {
    std::int64_t longest = 0;
    for (const State& state : states_) {
      longest = std::max(longest, state.time);
    }
    return longest;
  }

 private:
  struct State {
    std::vector<Contributors> chunks;
    int step = 0;                // the current one
    std::size_t unmatched = 0;   // actions of the current step
    std::int64_t time = 0;       // steps that are over on the longest path to the current one
    std::int64_t step_time = 0;  // the same, at the end of the current one
  };

  // What can be seen in one rank's schedule alone.
  void check_form() const {
    for (int rank = 0; rank < ranks_; ++rank) {
      const int chunks = schedules_[rank].chunks();
      if (chunks != schedules_[0].chunks()) {
        throw Refutation{fmt::format("rank {} cuts the buffer into {} chunks, rank 0 into {}", rank,
                                     chunks, schedules_[0].chunks())};
      }
      if ((operation_ == Operation::reduce_scatter || operation_ == Operation::all_gather) &&
          chunks != ranks_) {
        throw Refutation{
            fmt::format("rank {} cuts the buffer into {} chunks, {} needs one for "
                        "each of the {} ranks",
                        rank, chunks, name_of(operation_), ranks_)};
      }
      for (int step = 0; step < length(rank); ++step) {
        check_step(rank, step, chunks);
      }
    }
  }

  void check_step(int rank, int step, int chunks) const {
    const std::vector<Action>& actions = schedules_[rank].steps()[step].actions;
    for (const Action& action : actions) {
      if (action.chunk < 0 || action.chunk >= chunks) {
        refuted(rank, step, action, fmt::format("there are chunks 0 to {}", chunks - 1));
      }
      if (action.peer < 0 || action.peer >= ranks_ || action.peer == rank) {
        refuted(rank, step, action, "that is no other rank of this world");
      }
      const auto uses = std::ranges::count(actions, action.chunk, &Action::chunk);
      if (action.verb != Verb::send && uses > 1) {
        refuted(rank, step, action, "another action of the same step uses the chunk it writes");
      }
    }
  }

  int length(int rank) const { return static_cast<int>(schedules_[rank].steps().size()); }

  // Posts the actions of the rank's current step, if there is one left.
  void post(int rank) {
    State& state = states_[rank];
    if (state.step == length(rank)) {
      return;
    }
    const std::vector<Action>& actions = schedules_[rank].steps()[state.step].actions;
    state.unmatched = actions.size();
    state.step_time = state.time;
    for (const Action& action : actions) {
      Posted posted{state.step, action, state.time, {}};
      if (action.verb == Verb::send) {
        posted.sent = state.chunks[action.chunk];
        if (posted.sent.none()) {
          refuted(rank, state.step, action, "the chunk holds nothing yet");
        }
        channels_[{rank, action.peer}].sends.push_back(posted);
        ready_.emplace_back(rank, action.peer);
      } else {
        channels_[{action.peer, rank}].receives.push_back(posted);
        ready_.emplace_back(action.peer, rank);
      }
    }
  }

  // Lets the oldest send and the oldest receive between two ranks meet, if there are both.
  void match(int from, int to) {
    Channel& channel = channels_[{from, to}];
    if (channel.sends.empty() || channel.receives.empty()) {
      return;
    }
    const Posted send = channel.sends.front();
    const Posted receive = channel.receives.front();
    channel.sends.pop_front();
    channel.receives.pop_front();
    if (send.action.chunk != receive.action.chunk) {
      refuted(to, receive.step, receive.action,
              fmt::format("the message is chunk {}, sent in step {} of rank {}", send.action.chunk,
                          send.step, from));
    }
    Contributors& chunk = states_[to].chunks[receive.action.chunk];
    if (receive.action.verb == Verb::receive_reduce) {
      if (chunk.none()) {
        refuted(to, receive.step, receive.action, "the chunk holds nothing to reduce with");
      }
      if ((chunk & send.sent).any()) {
        refuted(to, receive.step, receive.action,
                "adds a second time " + to_string(chunk & send.sent));
      }
      chunk |= send.sent;
    } else {
      chunk = send.sent;
    }
    const std::int64_t over = std::max(send.time, receive.time) + 1;
    complete_one(from, over);
    complete_one(to, over);
  }

  void complete_one(int rank, std::int64_t over) {
    State& state = states_[rank];
    state.step_time = std::max(state.step_time, over);
    if (--state.unmatched == 0) {
      state.time = state.step_time;
      ++state.step;
      post(rank);
    }
  }

  // The first action of a rank's current step that waits for its counterpart.
  const Posted& waiting(int rank) const {
    for (const auto& [ends, channel] : channels_) {
      if (ends.first == rank && !channel.sends.empty()) {
        return channel.sends.front();
      }
      if (ends.second == rank && !channel.receives.empty()) {
        return channel.receives.front();
      }
    }
    throw std::logic_error("refute: a rank neither waits nor is at its end");
  }

  // Follows who waits for whom, from a rank that is not at its end: to a rank that is, or around.
  void check_finished() const {
    int rank = 0;
    while (rank < ranks_ && states_[rank].step == length(rank)) {
      ++rank;
    }
    if (rank == ranks_) {
      return;
    }
    std::vector<int> path;
    while (std::ranges::find(path, rank) == path.end()) {
      path.push_back(rank);
      const Posted& posted = waiting(rank);
      const int peer = posted.action.peer;
      if (states_[peer].step == length(peer)) {
        refuted(rank, posted.step, posted.action,
                fmt::format("never matched, rank {} has ended", peer));
      }
      rank = peer;
    }
    path.erase(path.begin(), std::ranges::find(path, rank));
    std::string circle;
    for (const int member : path) {
      const Posted& posted = waiting(member);
      circle += fmt::format("{}rank {} in step {} with {} of chunk {} for rank {}",
                            circle.empty() ? "" : ", ", member, posted.step,
                            name_of(posted.action.verb), posted.action.chunk, posted.action.peer);
    }
    throw Refutation{"deadlock, each waits for the next: " + circle};
  }

  void check_promise() const {
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int chunk = 0; chunk < schedules_[rank].chunks(); ++chunk) {
        const Contributors& held = states_[rank].chunks[chunk];
        const auto wanted = promised(operation_, rank, chunk, ranks_, root_);
        if (wanted && held != *wanted) {
          throw Refutation{
              fmt::format("rank {}, after its last step {}, chunk {}: holds {}, {} "
                          "promises {}",
                          rank, length(rank) - 1, chunk, to_string(held), name_of(operation_),
                          to_string(*wanted))};
        }
      }
    }
  }

  const Operation operation_;
  const std::vector<Schedule>& schedules_;
  const int ranks_;
  const int root_;
  std::vector<State> states_;
  std::map<std::pair<int, int>, Channel> channels_;  // by sender and receiver
  std::deque<std::pair<int, int>> ready_;            // channels where something was posted
};

std::int64_t elements_sent(const std::vector<Schedule>& schedules, std::int64_t count) {
  std::int64_t elements = 0;
  for (const Schedule& schedule : schedules) {
    for (const Step& step : schedule.steps()) {
      for (const Action& action : step.actions) {
        if (action.verb == Verb::send) {
          elements += chunk_range(count, schedule.chunks(), action.chunk).count;
        }
      }
    }
  }
  return elements;
}

void check_closed_forms(const Algorithm& algorithm, const std::vector<Schedule>& schedules,
                        std::int64_t steps) {
  const int ranks = static_cast<int>(schedules.size());
  if (steps != algorithm.steps(ranks)) {
    throw Refutation{
        fmt::format("{} steps, the closed form says {}", steps, algorithm.steps(ranks))};
  }
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{ranks} + 1,
                                   std::int64_t{1009}, std::int64_t{1} << 32}) {
    const std::int64_t sent = elements_sent(schedules, count);
    const std::int64_t expected = algorithm.elements_sent(ranks, count);
    if (sent != expected) {
      throw Refutation{fmt::format("{} elements sent for a buffer of {}, the closed form says {}",
                                   sent, count, expected)};
    }
  }
}

void check_ranks(std::size_t ranks) {
  if (ranks < 1 || ranks > max_proved_ranks) {
    throw std::invalid_argument(
        fmt::format("refute: 1 to {} ranks, asked for {}", max_proved_ranks, ranks));
  }
}

}  // namespace

std::optional<std::string> refute(Operation operation, const std::vector<Schedule>& schedules,
                                  int root) {
  check_ranks(schedules.size());
  try {
    Simulation(operation, schedules, root).run();
    return std::nullopt;
  } catch (const Refutation& refutation) {
    return refutation.text;
  }
}

std::optional<std::string> refute(const Algorithm& algorithm, int ranks) {
  check_ranks(static_cast<std::size_t>(ranks));
  const int roots = algorithm.operation == Operation::broadcast ? ranks : 1;
  for (int root = 0; root < roots; ++root) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < ranks; ++rank) {
      schedules.push_back(algorithm.emit(rank, ranks, root));
    }
    try {
      Simulation simulation(algorithm.operation, schedules, root);
      simulation.run();
      check_closed_forms(algorithm, schedules, simulation.steps());
    } catch (const Refutation& refutation) {
      return fmt::format("{} {} over {} ranks, root {}: {}", algorithm.name,
                         name_of(algorithm.operation), ranks, root, refutation.text);
    }
  }
  return std::nullopt;
}

}  // namespace ringworld
